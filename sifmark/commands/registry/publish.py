"""The registry.publish command: build, verify, sign and push an image, with one summary."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifmark.build.batch import BuildOptions, build_one
from sifmark.commands.answers import Table, answer
from sifmark.commands.pipelines import folded, write_junit
from sifmark.commands.registry.list import write_catalog
from sifmark.core.checks import Check, Status
from sifmark.core.console import output, paint, printable
from sifmark.core.errors import SifmarkError
from sifmark.core.files import human_size
from sifmark.core.settings import Settings
from sifmark.engines import Engine, open_engine
from sifmark.publish.catalog import catalog_document
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


def publish(publication: Publication, form: str, junit: str = "") -> None:
    """Publish an image step by step, and print what each step did; `junit` is a file for a report, or empty.

    A step that fails ends the work, and its error is raised after the summary. Raises SifmarkError.
    """
    steps = carry_out(publication.steps())
    document = {"recipe": publication.recipe, "steps": [step.document() for step in steps]}
    answer(form, document, _table(steps), lambda: _show(steps), summary=f"Published: {publication.recipe}")
    if junit:
        write_junit(Path(junit), {f"publish {publication.recipe}": [step.check for step in steps]})
    for step in steps:
        if step.error is not None:
            raise step.error


def publication_of(
    name: str, registry: str, tag: str, key: SigningKey | None, catalog: str, settings: Settings
) -> Publication:
    """Return what is to be published. Raises UsageError for an unknown name."""
    engine = open_engine(settings)
    return Publication(find_recipe(name), registry, tag, key, catalog, engine, publisher_of(engine), settings)


def carry_out(actions: Mapping[str, Action]) -> list[FinishedStep]:
    """Carry out actions in their order until one fails; those after it are skipped."""
    steps: list[FinishedStep] = []
    for name, action in actions.items():
        started = time.monotonic()
        if any(step.error for step in steps):
            check, error = Check(name, Status.SKIPPED, "not started: an earlier step failed"), None
        else:
            check, error = _attempt(name, action)
        steps.append(FinishedStep(check, time.monotonic() - started, error))
    return steps


def _attempt(name: str, action: Action) -> tuple[Check, SifmarkError | None]:
    try:
        with folded(name):
            return Check(name, Status.PASSED, action()), None
    except CheckSkipped as reason:
        return Check(name, Status.SKIPPED, str(reason)), None
    except SifmarkError as error:
        return Check(name, Status.FAILED, error.cause, error.remedy), error


def _table(steps: Sequence[FinishedStep]) -> Table:
    rows = [(each.check.name, each.check.status.value, f"{each.seconds:.1f}", each.check.detail) for each in steps]
    return Table(("step", "outcome", "seconds", "detail"), rows)


def _show(steps: Sequence[FinishedStep]) -> None:
    for each in steps:
        outcome = each.check.status.value
        first = each.check.detail.partition("\n")[0]
        state = paint(f"{outcome:<8}", word=outcome)
        output(f"{state} {each.check.name:<10} {each.seconds:6.1f} s  {printable(first)}")
