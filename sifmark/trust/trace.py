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
from sifmark.core.console import output, output_table, printable
from sifmark.core.errors import SifmarkError, unknown_name
from sifmark.core.files import sha256_json
from sifmark.core.keys import key_files, same_key
from sifmark.core.settings import settings, with_options
from sifmark.engines import CheckFailed, engine
from sifmark.engines.locate import locate
from sifmark.recipes.names import cards
from sifmark.recipes.plan import BASE_DIGEST, BUILD_KEY, PLATFORM, RECIPE, REVISION, STAND_IN, make_plan
from sifmark.recipes.recipe import recipe_names
from sifmark.results.load import LoadedResult, load_results
from sifmark.trust.checks import SignatureStatus, check_base_pin, check_provenance, check_signature, is_own_build
from sifmark.trust.image import CheckSkipped, ImageUnderTest, image_under_test

_OTHERWISE = "give another build key: they have changed since, or the Python of the base was on one host alone"
_COMMIT = re.compile(r"(?P<commit>[0-9a-f]{40,64})(?P<changed>-dirty)?")


class LinkStatus(StrEnum):
    """What is known of a link."""

    PROVEN = "proven"
    CLAIMED = "claimed"
    BROKEN = "broken"
    MISSING = "missing"


@dataclass(frozen=True)
class Link:
    """One step of the way back."""

    name: str
    standing: LinkStatus
    told: str


@dataclass(frozen=True)
class TracedImage:
    """What a result says of its image, and the image that is held against it, where there is one."""

    told: dict[str, Any]
    here: ImageUnderTest | None
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
    found = [(judged, trace_links(judged, image)) for judged in load_results(path)]
    if as_json:
        output(json.dumps([{"file": j.file, "links": [asdict(link) for link in told]} for j, told in found], indent=2))
    else:
        for judged, told in found:
            output(printable(judged.file))
            rows = [[link.name, link.standing, link.told] for link in told]
            output_table("link", "standing", "told", rows=rows)
    broken = {link.name for _, told in found for link in told if link.standing is LinkStatus.BROKEN}
    if broken:
        raise SifmarkError(f"broken: {', '.join(sorted(broken))}", "do not rely on such a result; ask where it is from")


def trace_links(judged: LoadedResult, name: str) -> list[Link]:
    """The way back from a document to its sources."""
    if judged.problems:
        return [Link("result", LinkStatus.BROKEN, judged.problems[0])]
    document = judged.document
    result = Link("result", LinkStatus.PROVEN, f"{document['id']}: valid, {document['status']['state']}")
    built = document["provenance"]["image"]
    if built is None:
        return [result, Link("image", LinkStatus.MISSING, document["provenance"]["reason"])]
    image = TracedImage(built, _named(name) if name else _built(built["recipe"]), bool(name))
    ran = _image(image)
    if ran.standing is LinkStatus.BROKEN:
        return [result, ran]
    proven = image.here if ran.standing is LinkStatus.PROVEN else None
    return [result, ran, *_of_image(image, proven), _base(image, proven), *_sources(image, document["workload"])]


@cache  # a folder may have hundreds of results of one image, which is hashed once
def _named(name: str) -> ImageUnderTest:
    """The image that a user names. Raises SifmarkError where there is none."""
    tool, address = locate(name)
    return image_under_test(tool, address, signed=False)


@cache
def _built(recipe: str) -> ImageUnderTest | None:
    """The image that is here under a recipe's name, as a result tells it, which may be any text."""
    if recipe not in recipe_names():
        return None
    tool = engine()
    with suppress(SifmarkError):
        return image_under_test(tool, tool.address(recipe), signed=False)
    return None


def _image(image: TracedImage) -> Link:
    """Whether the image here is the one that ran, and says of itself what the result says."""
    file, here = image.file, image.here
    ran = file["identity"] or file["digest"]
    seen = f"{file['seen_by']} saw {ran}" if ran else file["reason"]
    if here is None:
        return Link("image", LinkStatus.CLAIMED, f"{seen}; no image of recipe {image.told['recipe']} is here: inv pull")
    if ran is None and here.labels[BUILD_KEY] == image.told["build_key"]:
        return Link("image", LinkStatus.CLAIMED, f"{seen}; the image here has the same build key")
    if not _same(file, here):
        if not file["identity"] and here.labels[BUILD_KEY] == image.told["build_key"] and _is_signed(here):
            told = f"{seen}, which signing changes; the image here has the same build key"
            return Link("image", LinkStatus.CLAIMED, told)
        if image.named:
            return Link(
                "image", LinkStatus.BROKEN, f"{Path(here.address).name} is {here.inspection.identity()}; {seen}"
            )
        told = f"{seen}; the image here is another: name the one, --image FILE, or its --engine"
        return Link("image", LinkStatus.CLAIMED, told)
    stated = {
        RECIPE: image.told["recipe"],
        BUILD_KEY: image.told["build_key"],
        BASE_DIGEST: image.told["base"]["digest"],
        PLATFORM: image.told["platform"],
        STAND_IN: str(image.told["stand_in"]).lower(),
    }
    for label, said in stated.items():
        if here.labels[label] != said:
            return Link("image", LinkStatus.BROKEN, f"the result says {said}, the label {label} {here.labels[label]}")
    if here.labels.get(REVISION) not in (None, image.told["revision"]):
        return Link("image", LinkStatus.BROKEN, f"the result says revision {image.told['revision']}, the label another")
    return Link("image", LinkStatus.PROVEN, f"{Path(here.address).name}; {seen}")


def _is_signed(here: ImageUnderTest) -> bool:
    found = _signed(here)
    return isinstance(found, SignatureStatus) and found.there


def _same(file: dict[str, Any], here: ImageUnderTest) -> bool:
    """By what runs; where only the file's own digest was seen, by that."""
    if file["identity"]:
        return bool(file["identity"] == here.inspection.identity())
    return bool(file["digest"] == here.inspection.digest())


def _of_image(image: TracedImage, proven: ImageUnderTest | None) -> Iterator[Link]:
    """Signature, provenance and packages, which are proven only for the image that is."""
    signer = image.file["signer"]
    if proven is None:
        yield Link("signature", *_claim(signer and f"by {signer}, as inv run saw"))
        yield Link("provenance", LinkStatus.CLAIMED, "in the image, which is not here")
        yield Link("packages", LinkStatus.CLAIMED, "in the image, which is not here")
        return
    signed = _signature(proven, signer)
    yield signed
    vouched = (
        signed.standing is LinkStatus.PROVEN and proven.inspection.signature_covers_attestations
    ) or is_own_build(proven)
    standing = LinkStatus.PROVEN if vouched else LinkStatus.CLAIMED
    yield _provenance(proven, standing)
    yield _packages(proven, standing)


def _claim(told: str | None) -> tuple[LinkStatus, str]:
    return (LinkStatus.CLAIMED, told) if told else (LinkStatus.MISSING, "none")


def _signature(proven: ImageUnderTest, claimed: str | None) -> Link:
    """By whom it is signed now, and whether the result says another."""
    found = _signed(proven)
    if isinstance(found, CheckFailed):
        return Link("signature", LinkStatus.BROKEN, found.cause)
    if found.by is None:
        if claimed and not found.there:
            return Link("signature", LinkStatus.BROKEN, f"the result says by {claimed}, but the image is not signed")
        return Link("signature", *(_claim(claimed and f"by {claimed}; no key is trusted here to check it by")))
    if claimed and not same_key(claimed, found.by):
        return Link("signature", LinkStatus.BROKEN, f"the result says by {claimed}, it is by {found.by}")
    otherwise = f", which the result calls {claimed}" if claimed not in (None, found.by) else ""
    return Link("signature", LinkStatus.PROVEN, f"by {found.by}{otherwise}")


@cache
def _signed(proven: ImageUnderTest) -> SignatureStatus | CheckFailed:
    try:
        return check_signature(proven, proven.to_be_signed)
    except CheckFailed as reason:
        return reason


def _provenance(proven: ImageUnderTest, standing: LinkStatus) -> Link:
    """What it says that it was made of. It lies beside what runs: a signature of it, or the build here, vouches."""
    try:
        told = check_provenance(proven)
    except CheckFailed as reason:
        return Link("provenance", LinkStatus.BROKEN, reason.cause)
    return Link("provenance", standing, told) if told else Link("provenance", LinkStatus.MISSING, "none in it")


def _packages(proven: ImageUnderTest, standing: LinkStatus) -> Link:
    """The list of packages, which lies beside what runs too."""
    documents = proven.inspection.sboms()
    try:
        count = len(json.loads(documents[CYCLONEDX])["components"])
    except KeyError:
        return Link("packages", LinkStatus.MISSING, "no SBOM in it")
    except (ValueError, TypeError, RecursionError) as error:
        return Link("packages", LinkStatus.BROKEN, f"{CYCLONEDX} does not read: {error}")
    return Link("packages", standing, f"{count} in {', '.join(sorted(documents))}")


def _base(image: TracedImage, proven: ImageUnderTest | None) -> Link:
    """Whether the base is the one that the recipe here pins."""
    base = f"{image.told['base']['reference']}, {image.told['base']['digest']}"
    if proven is None or proven.labels[BASE_DIGEST] != image.told["base"]["digest"]:
        return Link("base", LinkStatus.CLAIMED, base)
    try:
        return Link("base", LinkStatus.PROVEN, check_base_pin(proven))
    except (CheckSkipped, CheckFailed) as reason:  # pins move on, and an older image stays what it is
        return Link(
            "base", LinkStatus.CLAIMED, f"{base}; {reason.cause if isinstance(reason, CheckFailed) else reason}"
        )


def _sources(image: TracedImage, workload: dict[str, Any]) -> Iterator[Link]:
    """Whether recipe, pins, lock and code here are those that the image was made of, and so workload and commit."""
    recipe, key, revision = (image.told[name] for name in ("recipe", "build_key", "revision"))
    try:
        if recipe not in recipe_names():
            raise unknown_name("recipe", recipe, recipe_names())
        today = make_plan(
            recipe, with_options(settings(), bases="stand-in" if image.told["stand_in"] else "pinned")
        ).build_key
        same = today == key
        told = "give its build key" if same else _OTHERWISE
    except SifmarkError as error:
        same, told = False, f"are not all here: {error.cause}"
    yield Link(
        "recipe",
        LinkStatus.PROVEN if same else LinkStatus.CLAIMED,
        f"{recipe}: recipe, pins, lock, entrypoints and schemas here {told}",
    )
    yield _workload(workload["name"], workload["identity"], same)
    yield _commit(revision, same)


def _workload(name: str, identity: str, same: bool) -> Link:
    """Whether what ran is the workload of these sources, by the hash of its problem."""
    known = cards().get(name)
    ours = known and sha256_json(known["problem"])
    if not same:
        return Link("workload", LinkStatus.CLAIMED, f"{name}, {identity}")
    if ours != identity:
        return Link(
            "workload", LinkStatus.BROKEN, f"the result says {name} is {identity}, in these sources it is {ours}"
        )
    return Link("workload", LinkStatus.PROVEN, f"{name}, {identity}")


def _commit(revision: str | None, same: bool) -> Link:
    if revision is None:
        return Link("commit", LinkStatus.MISSING, "the sources were in no repository")
    found = _COMMIT.fullmatch(revision)
    if found is None:
        return Link("commit", LinkStatus.BROKEN, f"{revision!r} is no revision")
    commit = found["commit"]
    if found["changed"]:
        return Link("commit", LinkStatus.CLAIMED, f"{commit}, with changes since that nobody kept")
    if same and git.revision() == commit:
        return Link("commit", LinkStatus.PROVEN, f"{commit}, checked out here, gives the build key")
    where = (
        "it is in this repository: check it out" if git.has_commit(commit) else "it is not in this repository: fetch it"
    )
    return Link("commit", LinkStatus.CLAIMED, f"{commit}; {where} and trace again, or inv reproduce")
