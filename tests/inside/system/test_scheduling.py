"""Run delay of real threads: little on their own processor, half if two share one."""

from __future__ import annotations

import os
import threading
import time
import zlib

import pytest

from entrypoints.system.scheduling import ThreadTime, elapsed, thread_times

pytestmark = pytest.mark.skipif(not thread_times(), reason="this kernel has no schedstat")


def busy(threads):
    """Return what this process spent while so many threads computed for 0.3 s on one processor.

    They share no lock of the interpreter: compressing releases it.
    """
    text, allowed = os.urandom(1 << 20), os.sched_getaffinity(0)
    before, until = thread_times(), time.monotonic() + 0.3

    def work():
        while time.monotonic() < until:
            zlib.compress(text)

    os.sched_setaffinity(0, {min(allowed)})  # inherited by the threads
    try:
        workers = [threading.Thread(target=work) for _ in range(threads - 1)]
        for worker in workers:
            worker.start()
        work()
        after = thread_times()  # while the others live
    finally:
        os.sched_setaffinity(0, allowed)
        for worker in workers:
            worker.join()
    return elapsed(before, after)


def test_threads_that_share_a_processor_wait_for_it():
    shared = busy(3)
    assert shared.waiting > shared.running  # two wait for each that runs, other work aside


def test_a_thread_that_sleeps_neither_runs_nor_waits():
    before = thread_times()
    time.sleep(0.2)
    spent = elapsed(before, thread_times())
    assert spent.running + spent.waiting < 0.15


def test_times_are_gained_thread_by_thread(tmp_path):
    for thread, text in {"1": "1000000000 500000000 3\n", "2": "0 0 0\n", "3": "not numbers\n"}.items():
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(text)
    (tmp_path / "4").mkdir()  # without the file: it has just ended
    after = thread_times(tmp_path)
    assert after == {"1": ThreadTime(1.0, 0.5), "2": ThreadTime(0.0, 0.0)}
    before = {"1": ThreadTime(0.25, 0.25), "9": ThreadTime(5.0, 5.0)}  # 9 has ended since
    assert elapsed(before, after) == ThreadTime(0.75, 0.25)
    assert thread_times(tmp_path / "none") == {}
