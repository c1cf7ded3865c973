"""ci/mutants: mutation testing. Makes a mutant of the sources for each seeded fault, and reports which the tests kill.

The tests that should kill a mutant run in the environment that they need; they must pass without the fault. A run of
all mutants, and any other with --record, writes its findings to ci/mutation/results.md, each with its day.

Exit codes: 0 each was killed; 1 one survived, or its fault no longer fits the code; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

from accelerator_faults import ACCELERATORS
from faults import Fault
from host_faults import HOST
from inside_faults import INSIDE
from patching import StaleFaultError, plant
from serving_faults import SERVING
from study_faults import STUDIES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results.md"
FAULTS = (*INSIDE, *ACCELERATORS, *HOST, *STUDIES, *SERVING)
# Tests that hang with a fault have killed it: after PATIENCE times their time without it, at least this many seconds.
PATIENCE, LEAST_PATIENCE = 5, 60.0
GATE = ("-m", "not full")  # mutants that only the full run kills die late


@dataclass(frozen=True)
class Finding:
    """The result of a fault: killed, survived, or why it is unclear."""

    fault: Fault
    verdict: str
    detail: str
    seconds: float


def main(argv: Sequence[str]) -> int:
    """Test a mutant for each requested fault and print a line for each. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="ci/mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="FAULT", help="these faults; a glob; may be repeated")
    parser.add_argument("--list", action="store_true", help="name the faults")
    parser.add_argument("--record", action="store_true", help="keep the findings beside those of other faults")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="faults at once")
    options = parser.parse_args(argv)
    chosen = [fault for fault in FAULTS if any(fnmatch(fault.name, pattern) for pattern in options.only or ["*"])]
    if not chosen:
        parser.error("no such fault: see --list")
    if options.list:
        for fault in chosen:
            print(f"{fault.name:<45} {fault.side}: {fault.symbol}")
        return 0
    with ThreadPoolExecutor(options.jobs) as pool:
        findings = []
        for finding in pool.map(examine, chosen):
            print(f"{finding.verdict:<8} {finding.seconds:6.1f} s  {finding.fault.name}: {finding.detail}", flush=True)
            findings.append(finding)
    if options.only is None or options.record:
        RESULTS.write_text(report(findings, RESULTS.read_text()))
    alive = [finding.fault.name for finding in findings if finding.verdict != "killed"]
    print(f"{len(findings) - len(alive)} of {len(findings)} killed" + (f"; not: {', '.join(alive)}" if alive else ""))
    return 1 if alive else 0


def examine(fault: Fault) -> Finding:
    """Run a fault's tests without it and with it, and return the finding."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sifmark-mutant-") as name:
        tree = copied(Path(name) / "tree")
        code, said = tested(fault, tree, None)
        if code != 0:
            return Finding(fault, "unclear", f"its tests fail without it: {said}", time.monotonic() - began)
        time_limit = max(LEAST_PATIENCE, PATIENCE * (time.monotonic() - began))
        try:
            plant(tree / fault.side, fault.symbol, fault.was, fault.becomes)
        except StaleFaultError as error:
            return Finding(fault, "stale", str(error), time.monotonic() - began)
        code, said = tested(fault, tree, time_limit)
    verdict = {0: "survived", 1: "killed"}.get(code, "unclear")
    return Finding(fault, verdict, said if code else " ".join(fault.tests), time.monotonic() - began)


def copied(target: Path) -> Path:
    """Return a checkout of the files that git has or would add, with this one's environments."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    git = ["git", "-C", str(target), "-c", "user.name=ci/mutants", "-c", "user.email=mutants@localhost"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "a copy"]):
        subprocess.run([*git, *words], check=True)
    for name in (".venv", ".venvs"):
        if (ROOT / name).exists() and not (target / name).exists():
            (target / name).symlink_to(ROOT / name)
    return target


def tested(fault: Fault, tree: Path, time_limit: float | None) -> tuple[int, str]:
    """Return pytest's exit code, and the first test that failed or else the last line."""
    folder = fault.environment if fault.environment == ".venv" else f".venvs/{fault.environment}"
    argv = [str(tree / folder / "bin" / "python"), "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *GATE]
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_WAIT_POLICY": "PASSIVE", "SIFMARK_BASES": "stand-in"}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*argv, *fault.tests], cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(time_limit)
        except subprocess.TimeoutExpired:
            return 1, f"still running after {time_limit:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what tests left running
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    return process.returncode, failed[1] if failed else (text.strip().splitlines() or ["it said nothing"])[-1]


def report(findings: Sequence[Finding], before: str) -> str:
    """Return a page of these findings, and of what it said `before` of other faults."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    rows = {row.split(" | ")[0].removeprefix("| "): row for row in before.splitlines() if row.startswith("| ")}
    for finding in findings:
        fault = finding.fault
        cells = (fault.name, fault.side, f"`{fault.symbol}`", finding.verdict, finding.detail, today)
        rows[fault.name] = "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
    kept = [rows[fault.name] for fault in FAULTS if fault.name in rows]
    killed = sum(" | killed | " in row for row in kept)
    return "\n".join(
        [
            "# Mutation testing",
            "",
            f"Written by `ci/mutants`: {killed} of {len(kept)} were killed, {len(FAULTS) - len(kept)} were not tried.",
            "",
            "| fault | side | symbol | verdict | the first test that failed, or why not | on |",
            "|---|---|---|---|---|---|",
            *kept,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
