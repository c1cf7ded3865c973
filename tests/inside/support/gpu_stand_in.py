"""A stand-in for `torch.cuda` and `torch.xpu`: streams with a clock each, which only what is queued moves.

The host is infinitely fast. Events note a stream's clock, and a stream that waits for an event moves its clock to it.
"""

from __future__ import annotations

import contextlib
import threading


class Stream:
    def __init__(self, runtime, device=None):
        self.runtime, self.clock = runtime, 0.0
        runtime.log("stream", stream=self)

    def wait_event(self, event):
        self.runtime.log("wait", stream=self, of=event.stream)
        self.clock = max(self.clock, event.at)

    def wait_stream(self, other):
        self.runtime.log("wait", stream=self, of=other)
        self.clock = max(self.clock, other.clock)


class Event:
    def __init__(self, runtime, enable_timing=False, blocking=False):
        self.runtime, self.stream, self.at = runtime, None, 0.0

    def record(self, stream=None):
        self.stream = stream or self.runtime.current_stream()
        self.at = self.stream.clock

    def query(self):
        return True

    def elapsed_time(self, later):
        return (later.at - self.at) * 1000

    def synchronize(self):
        self.runtime.log("event awaited", stream=self.stream)


class Runtime:
    """Takes the place of a module. `calls` are what was asked of it, in order: (what, thread, stream, details)."""

    def __init__(self):
        self.calls, self.changed = [], threading.Condition()
        self.default, self.local = Stream(self), threading.local()

    def log(self, what, stream=None, **details):
        with self.changed:
            self.calls.append((what, threading.get_ident(), stream, details))
            self.changed.notify_all()

    def of(self, what):
        return [call for call in list(self.calls) if call[0] == what]

    def awaited(self, condition, seconds=10):
        """Whether a condition holds before so many seconds are over."""
        with self.changed:
            return self.changed.wait_for(condition, seconds)

    def queue(self, what, seconds, **details):
        """Queue work of so many seconds on the calling thread's stream."""
        stream = self.current_stream()
        stream.clock += seconds
        self.log(what, stream=stream, **details)

    # As in torch.cuda

    def Event(self, enable_timing=False, blocking=False):  # noqa: N802 - a class there
        return Event(self, enable_timing, blocking)

    def Stream(self, device=None):  # noqa: N802
        return Stream(self, device)

    def current_stream(self, device=None):
        return getattr(self.local, "stream", self.default)

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.local.stream = self.current_stream(), stream
        try:
            yield
        finally:
            self.local.stream = before

    def synchronize(self):
        self.log("device awaited")

    def current_device(self):
        return 0

    def reset_peak_memory_stats(self):
        pass

    def max_memory_allocated(self):
        return 0

    max_memory_reserved = max_memory_allocated
    empty_cache = reset_peak_memory_stats
