"""Publishing an image: build, verify, sign, push and catalogue it, step by step."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sifmark.builds.batch import BuildOptions, build_one
from sifmark.core.checks import Check, Status
from sifmark.core.errors import SifmarkError
from sifmark.core.files import human_size, write_json, write_text
from sifmark.core.keys import key_names
from sifmark.core.settings import Settings
from sifmark.engines import Engine, open_engine
from sifmark.publish.catalog import catalog_document
from sifmark.publish.catalog_page import catalog_page
from sifmark.publish.publisher import Publisher, publisher_of
from sifmark.publish.reports import SigningKey
from sifmark.recipes.names import find_recipe, smallest_image
from sifmark.trust.image import CheckSkipped
from sifmark.trust.stages import STAGES, TRUST, Stage, verify

Action = Callable[[], str]  # returns what it did; raises SifmarkError, or CheckSkipped if there is nothing to do


@dataclass(frozen=True)
class Publication:
    """What is published, where, and by whom it is signed. Its steps return what they did, or raise SifmarkError."""

    recipe: str
    registry: str
    tag: str
    key: SigningKey | None
    catalog: str  # a folder, or empty for none
    engine: Engine
    publisher: Publisher
    settings: Settings

    def steps(self) -> dict[str, Action]:
        """Return the steps in their order: a SIF carries its signatures, those of Docker images are in the registry."""
        push: dict[str, Action] = {"push": self.push}
        sign: dict[str, Action] = {"sign": self.sign, "signature": self.check_signature}
        published = {**push, **sign} if self.publisher.SIGNS_IN_REGISTRY else {**sign, **push}
        return {"build": self.build, "verify": self.verify, **published, "catalog": self.write_catalog}

    def build(self) -> str:
        """Build the image unless it is up to date."""
        outcome = build_one(self.recipe, BuildOptions(), self.engine, self.settings)
        return f"{outcome.state}, {human_size(outcome.size or 0)}, with SBOMs and provenance"

    def verify(self) -> str:
        """Run all stages of verify."""
        results = self._require_passed(STAGES, signed=False)
        return ", ".join(f"{check.name} {check.status.value}" for check in results)

    def sign(self) -> str:
        """Sign the image, if there is a key."""
        if self.key is None:
            raise CheckSkipped(
                "no key: name one with --key, so that others can verify the image", code="argument-missing"
            )
        where = (self.registry, self.tag) if self.publisher.SIGNS_IN_REGISTRY else ("", "")
        return self.publisher.sign(self.recipe, self.key, *where, self.engine, self.settings).summary

    def push(self) -> str:
        """Push the image under each of its names."""
        return self.publisher.push(self.recipe, self.registry, self.tag, self.engine, self.settings).reference

    def check_signature(self) -> str:
        """Verify the new signature with the keys that the site trusts."""
        if self.key is None:
            raise CheckSkipped("not signed here", code="argument-missing")
        if not self.settings.keys:
            raise CheckSkipped("no trusted key: name one with --trusted-key", code="no-trusted-key")
        (check,) = self._require_passed([TRUST], signed=True)
        return check.detail.replace("\n", "; ")

    def write_catalog(self) -> str:
        """Write the registry's catalog, if there is a folder for it."""
        if not self.catalog:
            raise CheckSkipped("no folder: name one with --output", code="argument-missing")
        document = catalog_document(self.publisher.listing(self.registry, self.tag, self.settings))
        return ", ".join(map(str, write_catalog(document, Path(self.catalog), self.publisher, self.settings)))

    def _require_passed(self, stages: Sequence[Stage], *, signed: bool) -> list[Check]:
        """Return the checks of stages of verify. Raises SifmarkError if one fails."""
        # All names of a recipe are one file. Under this one, `smoke` starts the workload that is quickest to try.
        address = self.engine.address(smallest_image(self.recipe))
        checks = [result.check for result in verify(self.engine, address, self.settings, stages, signed)]
        for check in checks:
            if check.status is Status.FAILED:
                cause = f"stage {check.name} failed: {check.detail}"
                raise SifmarkError(cause, check.remedy, code="verification-failed")
        return checks


@dataclass(frozen=True)
class FinishedStep:
    """A step of publishing and how long it took in seconds; the error if it failed."""

    check: Check
    seconds: float
    error: SifmarkError | None = None

    def document(self) -> dict[str, Any]:
        """Return the step as programs read it."""
        check, code = self.check, self.error.code if self.error else None
        outcome = {"step": check.name, "outcome": check.status.value, "seconds": round(self.seconds, 3)}
        return {**outcome, "detail": check.detail, "code": code, "remedy": check.remedy or None}


def publication_of(
    name: str, registry: str, tag: str, key: SigningKey | None, catalog: str, settings: Settings
) -> Publication:
    """Return what is to be published. Raises UsageError for an unknown name."""
    engine = open_engine(settings)
    return Publication(find_recipe(name), registry, tag, key, catalog, engine, publisher_of(engine), settings)


def carry_out(
    actions: Mapping[str, Action], around: Callable[[str], AbstractContextManager[Any]] = nullcontext
) -> list[FinishedStep]:
    """Carry out actions in their order, each within `around` its name, until one fails; those after it are skipped."""
    steps: list[FinishedStep] = []
    for name, action in actions.items():
        started = time.monotonic()
        if any(step.error for step in steps):
            check, error = Check(name, Status.SKIPPED, "not started: an earlier step failed"), None
        else:
            with around(name):
                check, error = _attempt(name, action)
        steps.append(FinishedStep(check, time.monotonic() - started, error))
    return steps


def _attempt(name: str, action: Action) -> tuple[Check, SifmarkError | None]:
    try:
        return Check(name, Status.PASSED, action()), None
    except CheckSkipped as reason:
        return Check(name, Status.SKIPPED, str(reason)), None
    except SifmarkError as error:
        return Check(name, Status.FAILED, error.cause, error.remedy), error


def write_catalog(
    document: Mapping[str, Any], folder: Path, publisher: Publisher, settings: Settings
) -> tuple[Path, Path]:
    """Write a catalog to a folder as a document and a page, and return their paths."""
    paths = folder / "catalog.json", folder / "index.html"
    write_json(paths[0], document)
    write_text(paths[1], catalog_page(document, publisher.PULL_COMMAND, key_names(settings.keys), datetime.now(UTC)))
    return paths
