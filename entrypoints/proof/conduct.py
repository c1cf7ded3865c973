"""A proof from the first experiment to the page: within its time, and with everything kept that was measured."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, Mapping, Sequence

from entrypoints.contract import reference
from entrypoints.contract.cards import Card
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import Options
from entrypoints.planning.resolve import framework_and_device, resolve
from entrypoints.proof import correctness, experiments, page
from entrypoints.proof.experiments import Experiment
from entrypoints.proof.finding import FAILED, NOT_RUN, Finding
from entrypoints.proof.names import DOCTOR, LOGS, PAGE, PROOF, RESULTS
from entrypoints.results.result import timestamp
from entrypoints.runs.output import draft_file, indented_text
from entrypoints.runs.supervise import MAIN, TICK, Orders
from entrypoints.system.console import status

MINUTES = 20.0
LEAST = 5.0  # seconds that are left for an experiment to be begun
SHARE, LONG_ENOUGH = 0.25, 60.0  # of what is left, and seconds: for one run
NO_TIME = "there was no time left"
Json = Dict[str, Any]


class Proof:
    """What a proof has shown so far, in a folder: proof.json and proof.html are whole after every experiment."""

    def __init__(self, options: Options, cards: Mapping[str, Card], built: Mapping[str, Any] | None) -> None:
        """Take the options of a command line. Raises UsageError if they name no folder for the results."""
        self.options, self.built = options, built
        self.cards = {name: card for name, card in cards.items() if options.workload in (None, name)}
        self.all_cards = cards
        self.folder = _folder(options.output)
        total = options.time_limit or MINUTES * 60
        self.orders, self.lengths = Orders(total), experiments.Lengths.within(total)
        self.began = time.monotonic()
        self.findings: list[Finding] = []
        self.checked: set[str] = set()  # workloads with their precision
        self.measured: dict[str, correctness.Deviations] = {}
        self.document: Json = {
            "schema_version": "1.0",
            "started": _now(),
            "finished": None,
            "seconds": None,
            "command": sys.argv[1:],
            "image": built and {name: built[name] for name in ("recipe", "build_key", "version")},
            "device": None,
            "software": {},
            "experiments": [],
            "findings": [],
            "deviations": self.measured,
            "doctor": _read(self.folder / DOCTOR),
        }

    def run(self) -> Sequence[Finding]:
        """Make every experiment that there is time for, and return what they showed."""
        _, device = framework_and_device(self.options, self.built)
        focus = experiments.focus_of(device, self.cards if self.options.workload else self.all_cards)
        if not self.attempt(experiments.first(focus, device)):
            self.finish()
            return self.findings
        first, *others = experiments.PRECISIONS.get(device, ("bf16",))
        self.check(focus, first)
        for experiment in experiments.of_device(focus, device, self.all_cards, self.lengths):
            self.attempt(experiment)
        workloads = [card for card in self.cards.values() if MICROBENCHMARK not in card.tasks]
        workloads.sort(key=lambda card: int(card.problem["parameters"]))  # so that many are done if time is short
        for card in workloads:
            self.check(card, first)
            for task in card.tasks:
                self.attempt(experiments.of_workload(card, task, device, self.lengths))
        for precision in others:
            for card in workloads:
                self.check(card, precision)
        self.finish()
        return self.findings

    def attempt(self, experiment: Experiment) -> bool:
        """Make an experiment, unless there is no time left; return whether nothing failed in it."""
        if self.left() < LEAST:
            self.add(list(experiments.not_made(experiment, NO_TIME)))
            return True
        status(f"proof: {experiment.name}, {self.left() / 60:.1f} minutes left")
        began, documents, codes = time.monotonic(), [], []
        for number, words in enumerate(experiment.runs, 1):
            if self.orders.stop():
                break
            name = experiment.name if len(experiment.runs) == 1 else f"{experiment.name}-{number}"
            codes.append(self.start(name, words, self.share(experiment.seconds)))
            documents += _lines(self.folder / RESULTS / f"{name}.jsonl")
        if documents:
            self.describe(documents[0])
        if codes:
            self.document["experiments"].append(
                {
                    "name": experiment.name,
                    "commands": [list(words) for words in experiment.runs[: len(codes)]],
                    "exit_codes": codes,
                    "seconds": round(time.monotonic() - began, 3),
                    "results": [document["id"] for document in documents],
                }
            )
        findings = list(experiments.not_made(experiment, NO_TIME))
        if len(codes) == len(experiment.runs):
            findings = [judge(documents) for judge in experiment.judges]
        self.add(findings)
        return all(finding.state != FAILED for finding in findings)

    def start(self, name: str, words: Sequence[str], seconds: float) -> int:
        """Run the program to its end, with its words in a log; return the exit code.

        An order to stop is passed on once: a second one would end the run without its grace.
        """
        place = self.folder / RESULTS / f"{name}.jsonl"
        limit = ("--time-limit", f"{seconds:.0f}", "--output", str(place))
        site = ("--site", self.options.site) if self.options.site else ()
        with (self.folder / LOGS / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-s", "-B", str(MAIN), *words, *limit, *site], stdout=log, stderr=log
            )
            passed_on = 0
            while process.poll() is None:
                orders = self.orders.signals[passed_on:]
                passed_on += len(orders)
                for number in orders:
                    if number != signal.SIGINT:  # which a terminal sends to the run too
                        process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(TICK)
            return process.returncode

    def check(self, card: Card, precision: str) -> None:
        """Make the correctness check of a workload in a precision, unless an equal one was made."""
        subject = f"{card.name} {precision}"
        if reference.load(card) is None or subject in self.checked:
            return
        self.checked.add(subject)
        if self.left() < LEAST:
            self.add([Finding(correctness.CLAIM, subject, NOT_RUN, NO_TIME)])
            return
        status(f"proof: correctness of {subject}, {self.left() / 60:.1f} minutes left")
        options = self.options._replace(workload=card.name, task=card.tasks[0], precision=precision, output=None)
        findings, measured = correctness.examine(card, resolve(options, card, self.built), self.orders)
        subjects = {finding.subject for finding in self.findings if finding.claim == correctness.CLAIM}
        self.measured.setdefault(card.name, {}).update(measured)
        self.add([finding for finding in findings if finding.subject not in subjects])

    def left(self) -> float:
        """Return the seconds that are left; none after a signal."""
        if self.orders.stop() or self.orders.deadline is None:
            return 0.0
        return self.orders.deadline - time.monotonic()

    def share(self, most: float) -> float:
        """Return the seconds that a run may take: about a quarter of what is left, for others to have a turn."""
        return max(1.0, min(most, self.left(), max(SHARE * self.left(), LONG_ENOUGH)))

    def describe(self, document: Json) -> None:
        """Take the device and its software from the first result that has them."""
        accelerator = document["accelerator"]
        if self.document["device"] is None and "reason" not in accelerator:
            kind = accelerator["kind"]
            self.document["device"] = {"kind": kind, "name": accelerator.get("name", kind)}
            software = document["provenance"]["software"]
            versions = {**software, **software.get("libraries", {})}
            self.document["software"] = {name: value for name, value in versions.items() if isinstance(value, str)}

    def add(self, findings: Sequence[Finding]) -> None:
        """Keep findings, and write both files again."""
        self.findings += findings
        for finding in findings:
            status(f"proof: {finding.state.replace('_', ' ')}: {finding.claim} {finding.subject}: {finding.text}")
        self.write()

    def finish(self) -> None:
        """Write both files for the last time."""
        self.document.update(finished=_now(), seconds=round(time.monotonic() - self.began, 3))
        self.write()

    def write(self) -> None:
        """Write proof.json and proof.html."""
        self.document["findings"] = [finding.as_json() for finding in self.findings]
        for name, data in (
            (PROOF, indented_text(self.document)),
            (PAGE, page.render(self.document).encode()),
        ):
            with draft_file(self.folder, data) as draft:
                draft.replace(self.folder / name)


def _folder(output: str | None) -> Path:
    """Return the folder of a proof, made with those inside it. Raises UsageError if it has a proof already."""
    folder = Path(output or "proof")
    if (folder / PROOF).exists():
        raise UsageError(f"--output {folder}: it has a proof already", "name a new folder")
    try:
        for inside in (RESULTS, LOGS):
            (folder / inside).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--output {folder}: cannot make that folder: {error.strerror}", "name another", code="system-error"
        ) from None
    return folder


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def _lines(path: Path) -> list[Json]:
    """Return the results of a run, which were checked before they were written."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def _now() -> str:
    return timestamp(datetime.now(timezone.utc))
