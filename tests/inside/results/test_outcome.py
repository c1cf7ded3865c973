from __future__ import annotations

import signal

import pytest

from entrypoints.contract.messages import Ended, Failed, Phase
from entrypoints.contract.statuses import STATUSES
from entrypoints.results.outcome import Ending, determine_outcome

BEGUN = [Phase("import", 0.0)]
UNMAPPED = Failed("crashed", "ImportError: libusb-1.0.so.0: failed to map segment from shared object")
UNFILLED = Failed("crashed", "ImportError: libgdal.so.32: cannot map zero-fill pages")
WORKER = Failed("crashed", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ")
LOST = Failed("crashed", "RuntimeError: a data worker was killed")


@pytest.mark.parametrize(
    ("messages", "ending", "state", "code"),
    [
        ([Ended(1.0)], Ending(0, None, None, False), "completed", 0),
        # A vendor's library that dies while it tidies up has not spoilt what was measured.
        ([Ended(1.0)], Ending(-signal.SIGSEGV, None, None, False), "completed", 0),
        # Being stopped makes workers die, which is no crash.
        ([LOST], Ending(1, "interrupted", signal.SIGTERM, False), "interrupted", 143),
        ([LOST], Ending(1, "interrupted", signal.SIGINT, False), "interrupted", 130),
        ([LOST], Ending(1, "time_limit", None, False), "time_limit", 124),
        ([LOST], Ending(1, None, None, False), "crashed", 4),
        ([Failed("compile_failure", "no")], Ending(1, None, None, False), "compile_failure", 4),
        ([], Ending(0, None, None, False), "crashed", 4),
        ([], Ending(-signal.SIGKILL, None, None, True), "out_of_memory", 4),
        ([], Ending(-signal.SIGKILL, None, None, False), "crashed", 4),
        ([], Ending(-signal.SIGSEGV, None, None, True), "crashed", 4),
        ([], Ending(-(signal.SIGRTMIN + 1), None, None, False), "crashed", 4),  # has no name in Python
        # A process that dies at its limit of memory, as some libraries do without a word.
        ([], Ending(-signal.SIGABRT, None, None, False, 95.0, 100), "out_of_memory", 4),
        ([], Ending(-signal.SIGABRT, None, None, False, 50.0, 100), "crashed", 4),
        ([], Ending(-signal.SIGABRT, None, None, False, 95.0, None), "crashed", 4),
        ([LOST], Ending(1, None, None, False, 95.0, 100), "out_of_memory", 4),
        ([Failed("compile_failure", "no")], Ending(1, None, None, False, 95.0, 100), "compile_failure", 4),
        ([LOST], Ending(1, "interrupted", signal.SIGTERM, False, 95.0, 100), "interrupted", 143),
        # The kernel took one of the processes that decode.
        ([WORKER], Ending(1, None, None, True), "out_of_memory", 4),
        ([WORKER], Ending(1, None, None, False), "crashed", 4),
        # A library that finds no room: without a limit it is not known to be memory that is short.
        ([UNMAPPED], Ending(1, None, None, False, 50.0, 60), "out_of_memory", 4),
        ([UNFILLED], Ending(1, None, None, False, 50.0, 60), "out_of_memory", 4),
        ([UNMAPPED], Ending(1, None, None, False, 50.0, None), "crashed", 4),
        ([], Ending(1, None, None, False, 50.0, 60), "out_of_memory", 4),
        ([], Ending(1, None, None, False, 50.0, None), "crashed", 4),
        ([LOST], Ending(1, None, None, False, 50.0, 60), "crashed", 4),
        # A driver that hangs keeps even a killed process.
        ([], Ending(None, "time_limit", None, False), "time_limit", 124),
        ([], Ending(None, None, None, False), "crashed", 4),
    ],
)
def test_verdicts(messages, ending, state, code):
    outcome = determine_outcome([*BEGUN, *messages], ending)
    assert (outcome.state, outcome.exit_code) == (state, code)
    assert outcome.message


def test_no_exit_code_is_apptainers_own():
    assert 255 not in {status.exit_code for status in STATUSES.values()}
