"""SIGTERM and SIGHUP end this process as an exception does, so that commands are stopped and drafts are removed."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_postponed: list[int] | None = None  # signals that arrived during `postponed_signals`; None outside of it


def unwind_on_signals() -> None:
    """Raise SystemExit in the main thread at SIGTERM and SIGHUP."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _unwind)


@contextlib.contextmanager
def postponed_signals() -> Iterator[None]:
    """Unwind only at the end of the block: nothing could stop a command that is just being started."""
    global _postponed
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return
    received: list[int] = []
    _postponed = received
    try:
        yield
    finally:
        _postponed = None
        if received:
            raise SystemExit(128 + received[0])


def _unwind(number: int, _frame: FrameType | None) -> None:
    if _postponed is None:
        raise SystemExit(128 + number)
    _postponed.append(number)
