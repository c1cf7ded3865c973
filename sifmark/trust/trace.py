"""From a result back to its image, what is in that, and what it was made of: one check per link.

A link is passed if it is proven here and now; a warning if it is only claimed, because nothing here can prove it;
failed if something contradicts it; skipped if there is no such link.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifmark.attestations.sbom import CYCLONEDX
from sifmark.core import git
from sifmark.core.checks import Check, Status
from sifmark.core.console import counted
from sifmark.core.errors import SifmarkError, unknown_name
from sifmark.core.files import sha256_json
from sifmark.core.keys import key_files, same_key
from sifmark.core.settings import Settings, with_options
from sifmark.engines import CheckFailed, Engine, open_engine
from sifmark.engines.locate import engine_for, locate
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, PLATFORM, RECIPE, REVISION, STAND_IN
from sifmark.recipes.names import cards
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import recipe_names
from sifmark.results.envelope import signer_of
from sifmark.results.load import LoadedResult, load_all
from sifmark.trust.checks import SignatureStatus, check_base_pin, check_provenance, check_signature, is_own_build
from sifmark.trust.image import CheckSkipped, ImageUnderTest, image_under_test

LINKS = ("result", "image", "signature", "provenance", "packages", "base", "recipe", "workload", "commit")
VALID = "valid"  # a result that agrees with its schema and with itself, and that no trusted key has signed
# How a link is described, by its status.
STATES = {
    Status.PASSED: "verified",
    Status.WARNING: "unverified",
    Status.FAILED: "contradicted",
    Status.SKIPPED: "missing",
}
_OTHER_KEY = "give another build key: they have changed since, or the Python of the base was on one host alone"
_COMMIT = re.compile(r"(?P<commit>[0-9a-f]{40,64})(?P<changed>-dirty)?")


@dataclass(frozen=True)
class _Trace:
    """What a result says of its image, and the image here that it is compared with, if there is one."""

    claims: dict[str, Any]  # `provenance.image` of the result
    image: ImageUnderTest | None
    named: bool  # by the user, who says that this image ran

    @property
    def file(self) -> dict[str, Any]:
        """What was seen of the image when it ran."""
        return dict(self.claims["file"])


def trace_results(paths: Iterable[str], settings: Settings, image: str = "") -> list[tuple[str, list[Check]]]:
    """Return the links of each result at paths, with its file. `image` names the image that ran, if it is known.

    Raises SifmarkError for a path without results, an image or a key that is not there.
    """
    key_files(settings.keys)
    named = None
    if image:
        engine = engine_for(image, settings)
        named = image_under_test(engine, locate(image, engine), settings)
    tracer = Tracer(open_engine(settings), settings, named)
    return [(result.file, tracer.trace(result)) for result in load_all(paths)]


def link_document(link: Check) -> dict[str, str]:
    """Return a link as programs read it."""
    unsigned = link.name == "result" and link.status is Status.WARNING
    return {"name": link.name, "state": VALID if unsigned else STATES[link.status], "detail": link.detail}


def links_named(names: str) -> set[str]:
    """Return the links that a list with commas names. Raises UsageError for an unknown one."""
    wanted = {name.strip() for name in names.split(",")} if names else set()
    for name in sorted(wanted - set(LINKS)):
        raise unknown_name("link", name, LINKS)
    return wanted


def require_links(traces: Iterable[tuple[str, Sequence[Check]]], required: Collection[str]) -> None:
    """Raise SifmarkError if a link is contradicted, or one that is required is not verified."""
    traces = list(traces)
    if broken := {link.name for _, links in traces for link in links if link.status is Status.FAILED}:
        remedy = "do not rely on such a result; ask where it is from"
        raise SifmarkError(f"contradicted: {', '.join(sorted(broken))}", remedy, code="trace-broken")
    verified = [(file, {link.name for link in links if link.status is Status.PASSED}) for file, links in traces]
    if incomplete := [file for file, names in verified if not names.issuperset(required)]:
        lack = counted(len(incomplete), "result lacks", "results lack")
        cause = f"{lack} a required link ({', '.join(sorted(required))}), such as {incomplete[0]}"
        remedy = "name the image that ran, --image FILE, and trusted keys, --key; or choose links with --require"
        raise SifmarkError(cause, remedy, code="trace-incomplete")


class Tracer:
    """Traces results back to images here. A folder may have many results of an image, which is hashed only once.

    `image` is the one that a user names for all results; else the one of the result's recipe that is built here.
    """

    def __init__(self, engine: Engine, settings: Settings, image: ImageUnderTest | None = None) -> None:
        self._engine, self._settings, self._named_image = engine, settings, image
        self._built_images: dict[str, ImageUnderTest | None] = {}
        self._signatures: dict[str, SignatureStatus | CheckFailed] = {}
        self._signers: dict[str, str | SifmarkError] = {}  # of files of results

    def trace(self, result: LoadedResult) -> list[Check]:
        """Return the links from a result back to its sources."""
        if result.problems:
            return [Check("result", Status.FAILED, result.problems[0])]
        document = result.document
        first = self._result_link(result)
        claims = document["provenance"]["image"]
        if claims is None:
            return [first, Check("image", Status.SKIPPED, document["provenance"]["reason"])]
        trace = _Trace(claims, self._named_image or self._built_image(claims["recipe"]), bool(self._named_image))
        image = self._image_link(trace)
        if image.status is Status.FAILED:
            return [first, image]
        proven = trace.image if image.status is Status.PASSED else None
        sources = _source_links(trace, document["workload"], self._settings)
        return [first, image, *self._content_links(trace, proven), _base_link(trace, proven), *sources]

    def _result_link(self, result: LoadedResult) -> Check:
        """Return who vouches for a valid result, if anybody does."""
        state = f"{result.document['id']}: valid, {result.document['status']['state']}"
        try:
            return Check("result", Status.PASSED, f"{state}; signed by {self._signer(result)}")
        except SifmarkError as error:
            if error.code == "key-unusable":
                raise
            status = Status.FAILED if error.code == "signature-invalid" else Status.WARNING
            return Check("result", status, f"{state}; {error.cause}")

    def _signer(self, result: LoadedResult) -> str:
        """Return who has signed a result's file. Raises SifmarkError if nobody that is trusted here has."""
        if result.file not in self._signers:
            try:
                self._signers[result.file] = signer_of(result.path, self._settings.keys)
            except SifmarkError as error:
                self._signers[result.file] = error
        signer = self._signers[result.file]
        if isinstance(signer, SifmarkError):
            raise signer
        return signer

    def _built_image(self, recipe: str) -> ImageUnderTest | None:
        """Return the image of a recipe that is here. A result names the recipe, so it may be any text."""
        if recipe not in recipe_names():
            return None
        if recipe not in self._built_images:
            self._built_images[recipe] = None
            with suppress(SifmarkError):
                address = self._engine.address(recipe)
                self._built_images[recipe] = image_under_test(self._engine, address, self._settings)
        return self._built_images[recipe]

    def _signature(self, image: ImageUnderTest) -> SignatureStatus | CheckFailed:
        """Return by whom an image is signed, or why its signature is not valid."""
        if image.address not in self._signatures:
            try:
                self._signatures[image.address] = check_signature(image, image.signature_required)
            except CheckFailed as reason:
                self._signatures[image.address] = reason
        return self._signatures[image.address]

    def _image_link(self, trace: _Trace) -> Check:
        """Compare the image here with the one that ran, and with what the result says of it."""
        file, image = trace.file, trace.image
        digest = file["identity"] or file["digest"]
        observed = f"{file['seen_by']} saw {digest}" if digest else file["reason"]
        if image is None:
            return _claimed(
                "image", f"{observed}; no image of recipe {trace.claims['recipe']} is here: sifmark registry.pull"
            )
        same_build = image.labels[BUILD_KEY] == trace.claims["build_key"]
        if digest is None and same_build:
            return _claimed("image", f"{observed}; the image here has the same build key")
        if not _is_same(file, image):
            return self._other_image_link(trace, image, observed, same_build)
        if contradiction := _contradiction(trace.claims, image.labels):
            return Check("image", Status.FAILED, contradiction)
        return Check("image", Status.PASSED, f"{Path(image.address).name}; {observed}")

    def _other_image_link(self, trace: _Trace, image: ImageUnderTest, observed: str, same_build: bool) -> Check:
        if not trace.file["identity"] and same_build and self._is_signed(image):
            return _claimed("image", f"{observed}, which signing changes; the image here has the same build key")
        if trace.named:
            name, identity = Path(image.address).name, image.inspection.identity()
            return Check("image", Status.FAILED, f"{name} is {identity}; {observed}")
        return _claimed("image", f"{observed}; the image here is another: name the one, --image FILE, or its --engine")

    def _is_signed(self, image: ImageUnderTest) -> bool:
        signature = self._signature(image)
        return isinstance(signature, SignatureStatus) and signature.present

    def _content_links(self, trace: _Trace, proven: ImageUnderTest | None) -> Iterator[Check]:
        """Yield signature, provenance and packages, which only the image that ran can prove."""
        claimed = trace.file["signer"]
        if proven is None:
            yield _claimed_or_missing("signature", claimed and f"by {claimed}, as sifmark run saw")
            yield _claimed("provenance", "in the image, which is not here")
            yield _claimed("packages", "in the image, which is not here")
            return
        signature = self._signature_link(proven, claimed)
        yield signature
        covered = signature.status is Status.PASSED and proven.inspection.signature_covers_attestations
        status = Status.PASSED if covered or is_own_build(proven) else Status.WARNING
        yield _provenance_link(proven, status)
        yield _packages_link(proven, status)

    def _signature_link(self, image: ImageUnderTest, claimed: str | None) -> Check:
        """Return by whom an image is signed now, and whether the result says another."""
        signature = self._signature(image)
        if isinstance(signature, CheckFailed):
            return Check("signature", Status.FAILED, signature.cause)
        signer = signature.signer
        if signer is None:
            if claimed and not signature.present:
                detail = f"the result says by {claimed}, but the image is not signed"
                return Check("signature", Status.FAILED, detail)
            detail = f"by {claimed}; no key is trusted here to check it by" if claimed else ""
            return _claimed_or_missing("signature", detail)
        if claimed and not same_key(claimed, signer):
            return Check("signature", Status.FAILED, f"the result says by {claimed}, it is by {signer}")
        other_name = f", which the result calls {claimed}" if claimed not in (None, signer) else ""
        return Check("signature", Status.PASSED, f"by {signer}{other_name}")


def _claimed(name: str, detail: str) -> Check:
    return Check(name, Status.WARNING, detail)


def _claimed_or_missing(name: str, detail: str | None) -> Check:
    return _claimed(name, detail) if detail else Check(name, Status.SKIPPED, "none")


def _is_same(file: dict[str, Any], image: ImageUnderTest) -> bool:
    """Compare what runs; if only the file's digest was seen, compare that."""
    if file["identity"]:
        return bool(file["identity"] == image.inspection.identity())
    return bool(file["digest"] == image.inspection.digest())


def _contradiction(claims: dict[str, Any], labels: dict[str, str]) -> str | None:
    """Return where a result and the labels of its image differ."""
    stated = {
        RECIPE: claims["recipe"],
        BUILD_KEY: claims["build_key"],
        BASE_DIGEST: claims["base"]["digest"],
        PLATFORM: claims["platform"],
        STAND_IN: str(claims["stand_in"]).lower(),
    }
    for label, value in stated.items():
        if labels[label] != value:
            return f"the result says {value}, the label {label} {labels[label]}"
    if labels.get(REVISION) not in (None, claims["revision"]):
        return f"the result says revision {claims['revision']}, the label another"
    return None


def _provenance_link(image: ImageUnderTest, status: Status) -> Check:
    """Return what the image says it was made of. It is outside what runs: a signature or the build here proves it."""
    try:
        detail = check_provenance(image)
    except CheckFailed as reason:
        return Check("provenance", Status.FAILED, reason.cause)
    return Check("provenance", status, detail) if detail else Check("provenance", Status.SKIPPED, "none in it")


def _packages_link(image: ImageUnderTest, status: Status) -> Check:
    """Count the packages of the SBOM, which is outside what runs too."""
    documents = image.inspection.sboms()
    try:
        count = len(json.loads(documents[CYCLONEDX])["components"])
    except KeyError:
        return Check("packages", Status.SKIPPED, "no SBOM in it")
    except (ValueError, TypeError, RecursionError) as error:
        return Check("packages", Status.FAILED, f"{CYCLONEDX} does not read: {error}")
    return Check("packages", status, f"{count} in {', '.join(sorted(documents))}")


def _base_link(trace: _Trace, proven: ImageUnderTest | None) -> Check:
    """Return whether the base is the one that the recipe here pins."""
    base = f"{trace.claims['base']['reference']}, {trace.claims['base']['digest']}"
    if proven is None or proven.labels[BASE_DIGEST] != trace.claims["base"]["digest"]:
        return _claimed("base", base)
    try:
        return Check("base", Status.PASSED, check_base_pin(proven))
    except (CheckSkipped, CheckFailed) as reason:  # pins change, and an older image remains what it was
        return _claimed("base", f"{base}; {reason.cause if isinstance(reason, CheckFailed) else reason}")


def _source_links(trace: _Trace, workload: dict[str, Any], settings: Settings) -> Iterator[Check]:
    """Yield recipe, workload and commit: whether recipe, pins, lock and code here give the image's build key."""
    recipe = trace.claims["recipe"]
    try:
        same = _build_key(trace.claims, settings) == trace.claims["build_key"]
        detail = "give its build key" if same else _OTHER_KEY
    except SifmarkError as error:
        same, detail = False, f"are not all here: {error.cause}"
    status = Status.PASSED if same else Status.WARNING
    yield Check("recipe", status, f"{recipe}: recipe, pins, lock, entrypoints and schemas here {detail}")
    yield _workload_link(workload["name"], workload["identity"], same)
    yield _commit_link(trace.claims["revision"], same)


def _build_key(claims: dict[str, Any], settings: Settings) -> str:
    """Return the build key that the sources here give for a result's recipe. Raises SifmarkError."""
    if claims["recipe"] not in recipe_names():
        raise unknown_name("recipe", claims["recipe"], recipe_names())
    bases = "stand-in" if claims["stand_in"] else "pinned"
    return make_plan(claims["recipe"], with_options(settings, bases=bases)).build_key


def _workload_link(name: str, identity: str, same_sources: bool) -> Check:
    """Compare what ran with the workload of these sources, by the hash of its problem."""
    if not same_sources:
        return _claimed("workload", f"{name}, {identity}")
    card = cards().get(name)
    ours = card and sha256_json(card["problem"])
    if ours != identity:
        detail = f"the result says {name} is {identity}, in these sources it is {ours}"
        return Check("workload", Status.FAILED, detail)
    return Check("workload", Status.PASSED, f"{name}, {identity}")


def _commit_link(revision: str | None, same_sources: bool) -> Check:
    if revision is None:
        return Check("commit", Status.SKIPPED, "the sources were in no repository")
    match = _COMMIT.fullmatch(revision)
    if match is None:
        return Check("commit", Status.FAILED, f"{revision!r} is no revision")
    commit = match["commit"]
    if match["changed"]:
        return _claimed("commit", f"{commit}, with changes that were not committed")
    if same_sources and git.revision() == commit:
        return Check("commit", Status.PASSED, f"{commit}, checked out here, gives the build key")
    where = (
        "it is in this repository: check it out" if git.has_commit(commit) else "it is not in this repository: fetch it"
    )
    return _claimed("commit", f"{commit}; {where} and trace again, or sifmark image.reproduce")
