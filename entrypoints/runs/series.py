"""All runs of one command line: each is executed in turn, its document checked and written at once."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from dataclasses import replace
from typing import Any, Callable, Mapping, NamedTuple, Sequence, Tuple

from entrypoints.contract.cards import Card
from entrypoints.contract.group import LOOPBACK
from entrypoints.contract.statuses import INVALID_RESULT_EXIT, STATUSES, RunError, exit_code
from entrypoints.metering.meters import rapl
from entrypoints.planning.arguments import Options
from entrypoints.planning.configuration import Configuration
from entrypoints.planning.inputs import default_workers
from entrypoints.results import peaks, result
from entrypoints.results.json_values import Json
from entrypoints.results.measurement import fold
from entrypoints.results.numerics import Numerics, not_run, with_run_checks
from entrypoints.results.outcome import Ending, Outcome, determine_outcome, inconsistent, with_numerics
from entrypoints.rules.check import sizes_beyond, violations
from entrypoints.runs.batch_search import Search, search
from entrypoints.runs.evaluation import evaluated
from entrypoints.runs.execute import ExecutedRun, execute, not_begun
from entrypoints.runs.group import NOBODY_ELSE, Team
from entrypoints.runs.hub import Hello, Hub, follow
from entrypoints.runs.launch import Launch
from entrypoints.runs.numerics_check import check_before_runs, not_made
from entrypoints.runs.output import ON_STDOUT, ResultSchema, Writer, line_text, open_writer
from entrypoints.runs.report import duration_text, main_text, report
from entrypoints.runs.supervise import Orders
from entrypoints.system import environment, host, memory, session
from entrypoints.system.console import aligned, columns, status
from entrypoints.system.image import file_of

PlannedRuns = Tuple[Card, Sequence[Configuration]]


class FinishedRun(NamedTuple):
    """A finished run."""

    document: Json
    exit_code: int


class Series:
    """The runs of a command line. An order to stop ends the current run; the later ones are not started."""

    def __init__(
        self,
        planned: Sequence[PlannedRuns],
        image: Mapping[str, Any] | None,
        options: Options,
        launch: Launch | None = None,
    ) -> None:
        """Prepare the runs, of which other tasks of a launch do their share.

        Raises UsageError if the place for the results is unusable.
        """
        self.planned, self.image, self.options = planned, image, options
        self.total = sum(len(runs) for _, runs in planned)
        self.contract = ResultSchema()
        place = ON_STDOUT if launch and launch.task else options.output  # only the first task writes anything
        self.writer = open_writer(place, self.total, one_a_line=options.all)
        self.orders = Orders(options.time_limit)
        self.launch, self.team = launch, NOBODY_ELSE
        self.facts = host.facts()
        self.begun, self.started = 0, time.monotonic()
        self.done: list[FinishedRun] = []
        self.checks: list[float] = []  # seconds of the correctness check of each workload so far

    def run(self) -> int:
        """Execute every run and return the exit code of the series.

        Raises UsageError if the other tasks of the launch are not there, or have something else to run.
        """
        self.rehearse(*self.planned[0])
        if self.launch is None:
            return self.run_all()
        if self.launch.task:
            return follow(self.launch, self.hello(), self.orders)
        with Hub(self.launch, self.hello(), self.orders) as hub:
            try:
                hub.gather()
            except RunError as error:
                hub.exit_code = self.not_begun(error)
                return hub.exit_code
            sites = [hello.site for hello in (self.hello(), *(follower.hello for follower in hub.followers))]
            self.team = Team(sites, hub.followers, self.launch.head or LOOPBACK)
            self.planned = [(card, [self.shared(run) for run in runs]) for card, runs in self.planned]
            hub.exit_code = self.run_all()
            return hub.exit_code

    def not_begun(self, error: RunError) -> int:
        """Write the document of the first run, whose other tasks did not arrive, and return the exit code."""
        (card, runs), *_ = self.planned
        nothing = not_begun(card, runs[0], host.conditions(rapl.power_cap))
        stopped = Ending(None, self.orders.stop(), next(iter(self.orders.signals), None), oom_killed=False)
        ended = determine_outcome([], stopped) if stopped.stopped_by else None
        message = f"{ended.message}; {error.message}" if ended else error.message
        outcome = Outcome(error.state, ended.exit_code if ended else exit_code(error.state), message)
        self.finish(card, nothing._replace(outcome=outcome), None, not_made(runs[0], outcome))
        return close([finished.exit_code for finished in self.done], self.total, self.orders)

    def hello(self) -> Hello:
        """Return what this task says of itself to the others."""
        runs = [{**run.as_json(), "threads": None, "data_workers": None} for _, runs in self.planned for run in runs]
        image = str(self.image["build_key"]) if self.image else "no image"
        task = self.launch.task if self.launch else 0
        digest = hashlib.sha256(json.dumps(runs, sort_keys=True).encode()).hexdigest()
        processors = host.ranges(os.sched_getaffinity(0))
        node = self.launch.node if self.launch else ""
        return Hello(task, node, str(self.facts["hostname"]["value"]), processors, image, digest)

    def shared(self, run: Configuration) -> Configuration:
        """Return a run with the threads and workers that a rank has here, unless their number was asked for."""
        parts = self.team.parts(run)
        threads = self.options.threads or max(1, host.usable_cores() // parts)
        workers = run.data_workers
        if workers is not None and self.options.data_workers is None:
            workers = default_workers(parts, run.framework, run.device)
        return replace(run, threads=threads, data_workers=workers)

    def run_all(self) -> int:
        """Execute every run."""
        for card, runs in self.planned:
            if self.done and self.orders.stop():
                break
            self.workload(card, runs)
        if len(self.done) > 1:
            summarise(self.done)
        return close([finished.exit_code for finished in self.done], self.total, self.orders)

    def rehearse(self, card: Card, runs: Sequence[Configuration]) -> None:
        """Make and check the document of a run that was never started, so that nothing has to be read when a run ends.

        The image's file system may be gone by then: Slurm's SIGTERM also reaches the program that mounts it.
        """
        peaks.table()
        nothing = not_begun(card, runs[0], host.conditions(rapl.power_cap))
        self.contract.problems(self.document(card, nothing, nothing.outcome, None, not_run("not begun"), lambda: True))
        memory.keep_pages()

    def workload(self, card: Card, runs: Sequence[Configuration]) -> None:
        """Execute the runs of one workload, after its correctness check and perhaps a search for its batch."""
        numerics = check_before_runs(card, runs[0], self.orders, self.team)
        self.checks.append(numerics.seconds or 0.0)
        search_result = None
        if self.options.find_max_batch:
            search_result = search(card, runs[0], self.orders)
            if search_result.largest is None or not search_result.succeeded:
                self.finish(card, search_result.last, search_result, numerics)
                return
            runs = [run.of_size(search_result.largest, search_result.limit) for run in runs]
        for number, configuration in enumerate(runs):
            if number and self.orders.stop():
                return
            self.begun += 1
            if self.total > 1:
                status(f"run {self.begun} of {self.total}{self.time_left()}")
            self.finish(card, execute(card, configuration, self.orders, self.team), search_result, numerics)

    def finish(self, card: Card, executed: ExecutedRun, search_result: Search | None, numerics: Numerics) -> None:
        """Write the document of a run."""
        numerics = with_run_checks(numerics, executed.measurement.run_checks)
        outcome = with_numerics(executed.outcome, numerics)
        document = self.document(card, executed, outcome, search_result, numerics, self.orders.stop)
        code, place = deliver(document, self.contract, self.writer)
        if code != INVALID_RESULT_EXIT:  # else the document itself is the last line
            for line in report(document, place, columns()):
                status(line)
        self.done.append(FinishedRun(document, code))

    def time_left(self) -> str:
        """Return how long the remaining runs and checks will take if they are like those before, for people."""
        if not self.done:
            return ""
        checks = sum(self.checks)
        of_run = (time.monotonic() - self.started - checks) / len(self.done)
        seconds = of_run * (self.total - len(self.done))
        seconds += checks / len(self.checks) * (len(self.planned) - len(self.checks))
        return f", about {duration_text(seconds)} left"

    def document(
        self,
        card: Card,
        executed: ExecutedRun,
        outcome: Outcome,
        search_result: Search | None,
        numerics: Numerics,
        stop: Callable[[], object],
    ) -> Json:
        """Return the document of a run, with its context. After an order to stop, slow parts are left out."""
        image = self.image and {**self.image, "file": file_of(self.image, os.environ, stop)}
        context = result.Context(
            card=card,
            configuration=executed.configuration,
            image=image,
            host=self.facts,
            session=session.facts(os.environ),
            conditions=executed.conditions,
            conditions_after=executed.conditions_after,
            environment=environment.described(os.environ),
            site=self.options.site,
            command=sys.argv[1:],
            started=executed.started,
            finished=executed.finished,
            search=search_result and search_result.as_json(),
            numerics=numerics,
            jsonschema_version=self.contract.library_version,
        )

        def without_measurement(worse: Outcome) -> Json:  # what the child reported is no measurement at all
            nothing = fold([], card.problem["unit"], executed.configuration.task)
            return result.document(nothing, worse, context)

        whole = (numerics.seconds or 0.0) + (executed.finished - executed.started).total_seconds()
        executed = executed._replace(measurement=replace(executed.measurement, whole_seconds=whole))
        return evaluated(lambda: self.consistent(executed, outcome, context, without_measurement), without_measurement)

    def consistent(
        self,
        executed: ExecutedRun,
        outcome: Outcome,
        context: result.Context,
        without_measurement: Callable[[Outcome], Json],
    ) -> Json:
        """Return the document of a run, or one that says which part of the schema or which rule it breaks.

        Raises ValueError for a number that JSON does not have.
        """
        document = result.document(executed.measurement, outcome, context)
        line_text(document)
        complaints = self.contract.problems(document) or sizes_beyond(document)
        if complaints:
            return without_measurement(inconsistent(complaints))
        contradictions = violations(document)
        if contradictions:
            document["status"] = {**inconsistent(contradictions)._asdict(), "phase": document["status"]["phase"]}
        return document


def summarise(done: Sequence[FinishedRun]) -> None:
    """Write a table with a row for each run, for people."""
    rows = [("workload", "task", "batch", "state", "result")]
    for document, _ in done:
        workload, batch = document["workload"], str(document["configuration"]["batch_size"])
        state, figure = document["status"]["state"].replace("_", " "), main_text(document).partition("   ")[0]
        rows.append((workload["name"], workload["task"], batch, state, figure))
    for line in aligned(rows):
        status(line)


def close(codes: Sequence[int], planned: int, orders: Orders) -> int:
    """Return the exit code of a series, and say which runs were not started.

    A document that is not valid or not written counts first, then an order to stop, then the first failure.
    """
    missing = planned - len(codes)
    stopped = 0
    if missing:
        status(f"{missing} of {planned} runs were not started")
        state = orders.stop()
        stopped = exit_code(state, next(iter(orders.signals), None)) if state else 0
    stops = [code for code in (*codes, stopped) if code >= STATUSES["time_limit"].exit_code]
    ranked = [*(code for code in codes if code == INVALID_RESULT_EXIT), *stops, *codes]
    return next(filter(None, ranked), 0)


def deliver(document: Json, contract: ResultSchema, writer: Writer) -> tuple[int, str | None]:
    """Validate and write a document; return the exit code and the file. If either fails it is still output."""
    complaints = contract.problems(document)
    if complaints:
        status("the result does not validate, a defect of sifmark:")
        sys.stderr.write("\n".join([*complaints, json.dumps(document), ""]))
        return INVALID_RESULT_EXIT, None
    try:
        place = writer.write(document)
    except OSError as error:
        status(f"the result could not be written: {error}. Here it is:")
        sys.stderr.write(line_text(document).decode())
        return INVALID_RESULT_EXIT, None
    return document["status"]["exit_code"], place
