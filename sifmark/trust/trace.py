"""The trace verb: from a result back to its image, what is in that, and what it was made of.

Each link says how it stands: proven here and now; claimed, where nothing is at hand to hold it against; broken, where
something contradicts it; or missing.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from sifmark.attestations.sbom import CYCLONEDX
from sifmark.core import git
from sifmark.core.console import legible, show, show_table
from sifmark.core.errors import SifmarkError, unknown_name
from sifmark.core.files import sha256_json
from sifmark.core.keys import key_files, same
from sifmark.core.settings import overridden, settings
from sifmark.engines import Refuted, engine
from sifmark.engines.locate import locate
from sifmark.recipes.names import cards
from sifmark.recipes.plan import BASE_DIGEST, BUILD_KEY, PLATFORM, RECIPE, REVISION, STAND_IN, make_plan
from sifmark.recipes.recipe import recipe_names
from sifmark.results.load import Judged, judge_path
from sifmark.trust.checks import Signature, built_here, came_from, matches_pin, signature
from sifmark.trust.image import Skipped, Subject, subject_of

_OTHERWISE = "give another build key: they have changed since, or the Python of the base was on one host alone"
_COMMIT = re.compile(r"(?P<commit>[0-9a-f]{40,64})(?P<changed>-dirty)?")


class Standing(StrEnum):
    """What is known of a link."""

    PROVEN = "proven"
    CLAIMED = "claimed"
    BROKEN = "broken"
    MISSING = "missing"


@dataclass(frozen=True)
class Link:
    """One step of the way back."""

    name: str
    standing: Standing
    told: str


@dataclass(frozen=True)
class Image:
    """What a result says of its image, and the image that is held against it, where there is one."""

    told: dict[str, Any]
    here: Subject | None
    named: bool  # by the user, who says that it is the one

    @property
    def file(self) -> dict[str, Any]:
        """What was seen of the image when it ran."""
        return dict(self.told["file"])


def trace_results(path: str, image: str, as_json: bool) -> None:
    """Print the links of each result. Raises SifmarkError where one is broken."""
    key_files(settings().keys)
    if image:
        _named(image)
    found = [(judged, links(judged, image)) for judged in judge_path(path)]
    if as_json:
        show(json.dumps([{"file": j.file, "links": [asdict(link) for link in told]} for j, told in found], indent=2))
    else:
        for judged, told in found:
            show(legible(judged.file))
            rows = [[link.name, link.standing, link.told] for link in told]
            show_table("link", "standing", "told", rows=rows)
    broken = {link.name for _, told in found for link in told if link.standing is Standing.BROKEN}
    if broken:
        raise SifmarkError(f"broken: {', '.join(sorted(broken))}", "do not rely on such a result; ask where it is from")


def links(judged: Judged, name: str) -> list[Link]:
    """The way back from a document to its sources."""
    if judged.problems:
        return [Link("result", Standing.BROKEN, judged.problems[0])]
    document = judged.document
    result = Link("result", Standing.PROVEN, f"{document['id']}: valid, {document['status']['state']}")
    built = document["provenance"]["image"]
    if built is None:
        return [result, Link("image", Standing.MISSING, document["provenance"]["reason"])]
    image = Image(built, _named(name) if name else _built(built["recipe"]), bool(name))
    ran = _image(image)
    if ran.standing is Standing.BROKEN:
        return [result, ran]
    proven = image.here if ran.standing is Standing.PROVEN else None
    return [result, ran, *_of_image(image, proven), _base(image, proven), *_sources(image, document["workload"])]


@cache  # a folder may have hundreds of results of one image, which is hashed once
def _named(name: str) -> Subject:
    """The image that a user names. Raises SifmarkError where there is none."""
    tool, address = locate(name)
    return subject_of(tool, address, signed=False)


@cache
def _built(recipe: str) -> Subject | None:
    """The image that is here under a recipe's name, as a result tells it, which may be any text."""
    if recipe not in recipe_names():
        return None
    tool = engine()
    with suppress(SifmarkError):
        return subject_of(tool, tool.address(recipe), signed=False)
    return None


def _image(image: Image) -> Link:
    """Whether the image here is the one that ran, and says of itself what the result says."""
    file, here = image.file, image.here
    ran = file["identity"] or file["digest"]
    seen = f"{file['seen_by']} saw {ran}" if ran else file["reason"]
    if here is None:
        return Link("image", Standing.CLAIMED, f"{seen}; no image of recipe {image.told['recipe']} is here: inv pull")
    if ran is None and here.labels[BUILD_KEY] == image.told["build_key"]:
        return Link("image", Standing.CLAIMED, f"{seen}; the image here has the same build key")
    if not _same(file, here):
        if not file["identity"] and here.labels[BUILD_KEY] == image.told["build_key"] and _is_signed(here):
            told = f"{seen}, which signing changes; the image here has the same build key"
            return Link("image", Standing.CLAIMED, told)
        if image.named:
            return Link("image", Standing.BROKEN, f"{Path(here.address).name} is {here.evidence.identity()}; {seen}")
        told = f"{seen}; the image here is another: name the one, --image FILE, or its --engine"
        return Link("image", Standing.CLAIMED, told)
    stated = {
        RECIPE: image.told["recipe"],
        BUILD_KEY: image.told["build_key"],
        BASE_DIGEST: image.told["base"]["digest"],
        PLATFORM: image.told["platform"],
        STAND_IN: str(image.told["stand_in"]).lower(),
    }
    for label, said in stated.items():
        if here.labels[label] != said:
            return Link("image", Standing.BROKEN, f"the result says {said}, the label {label} {here.labels[label]}")
    if here.labels.get(REVISION) not in (None, image.told["revision"]):
        return Link("image", Standing.BROKEN, f"the result says revision {image.told['revision']}, the label another")
    return Link("image", Standing.PROVEN, f"{Path(here.address).name}; {seen}")


def _is_signed(here: Subject) -> bool:
    found = _signed(here)
    return isinstance(found, Signature) and found.there


def _same(file: dict[str, Any], here: Subject) -> bool:
    """By what runs; where only the file's own digest was seen, by that."""
    if file["identity"]:
        return bool(file["identity"] == here.evidence.identity())
    return bool(file["digest"] == here.evidence.digest())


def _of_image(image: Image, proven: Subject | None) -> Iterator[Link]:
    """Signature, provenance and packages, which are proven only for the image that is."""
    signer = image.file["signer"]
    if proven is None:
        yield Link("signature", *_claim(signer and f"by {signer}, as inv run saw"))
        yield Link("provenance", Standing.CLAIMED, "in the image, which is not here")
        yield Link("packages", Standing.CLAIMED, "in the image, which is not here")
        return
    signed = _signature(proven, signer)
    yield signed
    vouched = (signed.standing is Standing.PROVEN and proven.evidence.signs_papers) or built_here(proven)
    standing = Standing.PROVEN if vouched else Standing.CLAIMED
    yield _provenance(proven, standing)
    yield _packages(proven, standing)


def _claim(told: str | None) -> tuple[Standing, str]:
    return (Standing.CLAIMED, told) if told else (Standing.MISSING, "none")


def _signature(proven: Subject, claimed: str | None) -> Link:
    """By whom it is signed now, and whether the result says another."""
    found = _signed(proven)
    if isinstance(found, Refuted):
        return Link("signature", Standing.BROKEN, found.cause)
    if found.by is None:
        if claimed and not found.there:
            return Link("signature", Standing.BROKEN, f"the result says by {claimed}, but the image is not signed")
        return Link("signature", *(_claim(claimed and f"by {claimed}; no key is trusted here to check it by")))
    if claimed and not same(claimed, found.by):
        return Link("signature", Standing.BROKEN, f"the result says by {claimed}, it is by {found.by}")
    otherwise = f", which the result calls {claimed}" if claimed not in (None, found.by) else ""
    return Link("signature", Standing.PROVEN, f"by {found.by}{otherwise}")


@cache
def _signed(proven: Subject) -> Signature | Refuted:
    try:
        return signature(proven, proven.to_be_signed)
    except Refuted as reason:
        return reason


def _provenance(proven: Subject, standing: Standing) -> Link:
    """What it says that it was made of. It lies beside what runs: a signature of it, or the build here, vouches."""
    try:
        told = came_from(proven)
    except Refuted as reason:
        return Link("provenance", Standing.BROKEN, reason.cause)
    return Link("provenance", standing, told) if told else Link("provenance", Standing.MISSING, "none in it")


def _packages(proven: Subject, standing: Standing) -> Link:
    """The list of packages, which lies beside what runs too."""
    documents = proven.evidence.sboms()
    try:
        count = len(json.loads(documents[CYCLONEDX])["components"])
    except KeyError:
        return Link("packages", Standing.MISSING, "no SBOM in it")
    except (ValueError, TypeError, RecursionError) as error:
        return Link("packages", Standing.BROKEN, f"{CYCLONEDX} does not read: {error}")
    return Link("packages", standing, f"{count} in {', '.join(sorted(documents))}")


def _base(image: Image, proven: Subject | None) -> Link:
    """Whether the base is the one that the recipe here pins."""
    base = f"{image.told['base']['reference']}, {image.told['base']['digest']}"
    if proven is None or proven.labels[BASE_DIGEST] != image.told["base"]["digest"]:
        return Link("base", Standing.CLAIMED, base)
    try:
        return Link("base", Standing.PROVEN, matches_pin(proven))
    except (Skipped, Refuted) as reason:  # pins move on, and an older image stays what it is
        return Link("base", Standing.CLAIMED, f"{base}; {reason.cause if isinstance(reason, Refuted) else reason}")


def _sources(image: Image, workload: dict[str, Any]) -> Iterator[Link]:
    """Whether recipe, pins, lock and code here are those that the image was made of, and so workload and commit."""
    recipe, key, revision = (image.told[name] for name in ("recipe", "build_key", "revision"))
    try:
        if recipe not in recipe_names():
            raise unknown_name("recipe", recipe, recipe_names())
        today = make_plan(recipe, overridden(bases="stand-in" if image.told["stand_in"] else "pinned")).build_key
        same = today == key
        told = "give its build key" if same else _OTHERWISE
    except SifmarkError as error:
        same, told = False, f"are not all here: {error.cause}"
    yield Link(
        "recipe",
        Standing.PROVEN if same else Standing.CLAIMED,
        f"{recipe}: recipe, pins, lock, entrypoints and schemas here {told}",
    )
    yield _workload(workload["name"], workload["identity"], same)
    yield _commit(revision, same)


def _workload(name: str, identity: str, same: bool) -> Link:
    """Whether what ran is the workload of these sources, by the hash of its problem."""
    known = cards().get(name)
    ours = known and sha256_json(known["problem"])
    if not same:
        return Link("workload", Standing.CLAIMED, f"{name}, {identity}")
    if ours != identity:
        return Link("workload", Standing.BROKEN, f"the result says {name} is {identity}, in these sources it is {ours}")
    return Link("workload", Standing.PROVEN, f"{name}, {identity}")


def _commit(revision: str | None, same: bool) -> Link:
    if revision is None:
        return Link("commit", Standing.MISSING, "the sources were in no repository")
    found = _COMMIT.fullmatch(revision)
    if found is None:
        return Link("commit", Standing.BROKEN, f"{revision!r} is no revision")
    commit = found["commit"]
    if found["changed"]:
        return Link("commit", Standing.CLAIMED, f"{commit}, with changes since that nobody kept")
    if same and git.revision() == commit:
        return Link("commit", Standing.PROVEN, f"{commit}, checked out here, gives the build key")
    where = "it is in this repository: check it out" if git.has(commit) else "it is not in this repository: fetch it"
    return Link("commit", Standing.CLAIMED, f"{commit}; {where} and trace again, or inv reproduce")
