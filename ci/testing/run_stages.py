"""ci/test: the tests as stages that run in parallel, can be chosen by name, and are remembered.

Without options this is the gate: all stages and tests except those that only the full run has. The gate runs everything
it has, whatever passed before: a record in build/ is a file that anything may have written.

With --full everything runs, except a stage that passed before with the same inputs: the files it reads, its
environment, the programs it starts and the selected tests. So an interrupted or failed run continues where it stopped.
--afresh ignores the records.

Exit codes: 0 all passed; 1 a stage failed, or with --full could not run; 2 wrong usage; 130 or 143 stopped by a signal.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from types import FrameType
from typing import NoReturn

from records import FOLDER, Record, forget, load, save
from schedule import Outcome, Result, Schedule
from setups import setups
from stages import Stage, all_stages

MEMORY_PER_STAGE = 6 << 30  # bytes; the largest workloads in the tests take 5 GiB


def main(argv: Sequence[str]) -> int:
    """Run, list or forget stages. Return the exit code."""
    options = parser().parse_args(argv)
    stages = chosen(options.only, options.full or options.list)
    if options.list:
        for line in listing(stages):
            print(line)
        return 0
    if options.afresh:
        for stage in stages:
            forget(stage.name)
    signal.signal(signal.SIGTERM, unwind)
    names = {name for stage in stages for name in stage.needs}
    schedule = Schedule(stages, setups(names, options.full), options.jobs, options.full, resume=options.full)
    outcomes = []
    for outcome in schedule.run(tell):
        conclude(outcome)
        outcomes.append(outcome)
    return summarise(outcomes, options.full)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="ci/test", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="run everything that did not pass before as it is now")
    parser.add_argument("--only", action="append", metavar="STAGE", help="run these stages; a glob; may be repeated")
    parser.add_argument("--afresh", action="store_true", help="forget what passed before")
    parser.add_argument("--list", action="store_true", help="name the stages, with what each took the last time")
    parser.add_argument("--jobs", type=_positive, default=default_jobs(), metavar="N", help="stages at once")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("a number from 1")
    return number


def default_jobs() -> int:
    """Return one stage for each core and one more, since all wait at times, but no more than fit into memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)) + 1, memory // MEMORY_PER_STAGE))


def chosen(patterns: Sequence[str] | None, full: bool) -> list[Stage]:
    """Return the stages chosen by name, or else those of the gate, or all."""
    stages = all_stages()
    for pattern in patterns or ():
        if not any(fnmatch(stage.name, pattern) for stage in stages):
            parser().error(f"no stage {pattern!r}; they are: {', '.join(stage.name for stage in stages)}")
    if patterns:
        return [stage for stage in stages if any(fnmatch(stage.name, pattern) for pattern in patterns)]
    return [stage for stage in stages if full or stage.gate is not None]


def conclude(outcome: Outcome) -> None:
    """Print a stage's output, and record how it ended."""
    name, record = outcome.stage.name, outcome.record
    if outcome.result in (Result.PASSED, Result.FAILED) and record is not None:
        save(record)
        sys.stdout.write((FOLDER / f"{name}.log").read_text(errors="replace"))
        sys.stdout.flush()
    if outcome.result is Result.UNCHANGED and record is not None:
        tell(f"{name}: passed on {record.finished} with the same inputs, not run again (--afresh runs it)")
    elif outcome.result is Result.NOT_RUN:
        tell(f"SKIPPED {name}: {outcome.reason}")
    else:
        tell(f"{name} {outcome.result.value}: {outcome.reason or taken(record)}")


def taken(record: Record | None) -> str:
    """Return the counts and time of a run, in words."""
    if record is None:
        return "never"
    counts = {"passed": record.tests, "skipped": record.skipped, "failed": record.failed}
    return f"{', '.join(f'{n} {word}' for word, n in counts.items() if n)} in {record.seconds / 60:.1f} min"


def listing(stages: Sequence[Stage]) -> list[str]:
    """Return a table of the stages: when each runs, and its last run."""
    rows = [("stage", "runs in", "last time", "what it is")]
    for stage in stages:
        record = load(stage.name)
        when = "gate and full" if stage.gate is not None else "full"
        last = f"{'passed' if record.passed else 'failed'}, {taken(record)}" if record else "-"
        rows.append((stage.name, when, last, stage.title))
    return table(rows)


def summarise(outcomes: Sequence[Outcome], full: bool) -> int:
    """Print a line for each stage, and what failed. Return the exit code."""
    rows: list[Sequence[str]] = [("stage", "result", "tests", "skipped", "minutes")]
    for outcome in sorted(outcomes, key=lambda outcome: -outcome.record.seconds if outcome.record else 0):
        record = outcome.record
        numbers = (record.tests, record.skipped, f"{record.seconds / 60:.1f}") if record else ("", "", "")
        rows.append((outcome.stage.name, outcome.result.value, *map(str, numbers)))
    for line in table(rows):
        print(line)
    bad = (Result.FAILED, Result.NOT_RUN) if full else (Result.FAILED,)
    failed = [outcome.stage.name for outcome in outcomes if outcome.result in bad]
    if failed:
        tell(f"error: failed: {', '.join(failed)}")
        tell(f"remedy: the output above names each test; it is in {FOLDER}, too")
        return 1
    tell("all passed")
    return 0


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def tell(text: str) -> None:
    """Print progress for people."""
    sys.stdout.flush()
    sys.stderr.write(f"[test] {text}\n")
    sys.stderr.flush()


def unwind(number: int, _frame: FrameType | None) -> NoReturn:
    """Exit as the signal asks, through all `finally` blocks."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
