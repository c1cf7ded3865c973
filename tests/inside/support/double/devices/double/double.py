"""A device that computes nothing and can be told, by DOUBLE_FAULT, to fail in one of the ways hardware does.

Copied into a tree of the entrypoints by `program.py`; never part of an image.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

from entrypoints.contract.session import (
    Answer,
    ChainSample,
    DeviceConditions,
    DeviceFacts,
    EvaluationResult,
    FirstStep,
    StepReport,
    Usage,
)
from entrypoints.contract.statuses import RunError

# NAME, or NAME:SIZE for the faults that come with batches above a size
FAULT, _, SIZE = os.environ.get("DOUBLE_FAULT", "").partition(":")
FAULTY_STEP = 4
LEAST = 5e-324  # s: the smallest number above 0
LIE = 10 if FAULT == "tenfold" else 1  # times the samples that a batch has
WHAT = "galaxy" if FAULT == "galaxy" else "board"  # a device is
MESSAGES = int(sys.argv[2]) if sys.argv[1:2] == ["--child"] else -1  # the pipe to the parent
STEP_SECONDS = float(os.environ.get("DOUBLE_STEP_SECONDS", "0.01"))
STAMPS = os.environ.get("DOUBLE_STAMPS")  # a file for the moments of the monotonic clock at which steps ended
time.sleep(float(os.environ.get("DOUBLE_IMPORT_SECONDS", "0")))
TRANSFER, COMPUTE, RETRIEVAL = 0.003, 0.006, 0.001  # s of a request; they add up to a step's


def prepare(precision, threads, streams=1):
    if FAULT == "print":
        sys.stdout.write("a vendor's banner, printed by Python\n")
        os.write(1, b"and one by a C library\n")
        subprocess.run([sys.executable, "-c", "print('and one by a tool of the vendor')"], check=True)
    if FAULT == "offspring":
        nothing = subprocess.DEVNULL
        sleeper = subprocess.Popen(["sleep", "600"], stdin=nothing, stdout=nothing, stderr=nothing)
        os.write(2, f"the double started {sleeper.pid} and hangs\n".encode())
        never_return("hangs")
    if FAULT == "daemon":
        daemonise()
    if FAULT == "early":
        end_early()
    if FAULT == "exit":
        os._exit(7)
    if FAULT == "no_device":
        raise RunError("no_device", "no double was found on this machine")
    if precision != "fp32":
        raise RunError("unsupported", f"--precision {precision} on double: it can do fp32")


def libraries():
    return {"beneath": "1.2", "absent": None}


def free_mib():
    return None


def open_session(model, rule, precision, compiled, partition=None, group=None):
    return Double(model)


class Text:
    """The state of texts that are continued with the token 0."""

    def __init__(self, texts):
        self.texts, self.token = texts, [[0]] * texts


class Double:
    asynchronous = False
    facts = DeviceFacts("double", "nobody", None, 1, WHAT, None, 1, 1, "not at all", simulated=True)
    steps = 0
    edges: tuple[int, ...] = ()  # the steps that were done when the timed window began and ended

    def __init__(self, card):
        self.card = card
        self.lock = threading.Lock()  # there is one device, however many streams ask

    def to_device(self, batch):
        return batch

    def feed(self, batches, targets):
        return batches

    def receive(self, fed):
        return fed

    def train(self, batch):
        self.steps += 1
        self.samples = LIE * batch.samples
        time.sleep(STEP_SECONDS)
        if self.steps == FAULTY_STEP:
            fail()
        if FAULT == "numerics":
            return StepReport(samples=batch.samples, updates=1, loss=lambda: 7.0)
        if STAMPS:
            with Path(STAMPS).open("a") as file:
                file.write(f"{time.monotonic()}\n")
        if SIZE and len(batch.inputs) > int(SIZE):
            too_large()
        loss = float("nan") if FAULT == "non_finite" and self.steps == FAULTY_STEP else 1.0 / self.steps
        return StepReport(samples=LIE * batch.samples, updates=1, loss=lambda: loss)

    def infer(self, batch):
        output = [1.0 if FAULT == "answers" else 0.0] * batch.samples
        return StepReport(samples=batch.samples, updates=0, loss=None, output=lambda: output)

    def evaluate(self, batch):
        time.sleep(STEP_SECONDS)
        if FAULT == "evaluation":
            raise RuntimeError("out of memory, said the double")
        samples = batch.samples
        return EvaluationResult(samples, 1.0 / self.steps, min(samples, self.steps))

    def infer_request(self, batch):
        with self.lock:
            self.steps += 1
            if self.steps == FAULTY_STEP:
                fail()
            marks = [self.mark()]
            for seconds in (TRANSFER, COMPUTE, RETRIEVAL):
                time.sleep(seconds)
                marks.append(self.mark())
        output = getattr(batch.inputs, "logits", [0.0] * len(batch.inputs))
        return Answer(output, *(later - earlier for earlier, later in zip(marks, marks[1:])))

    def begin(self, batch, iterations, chains=1):
        return self.next_state(Text(batch.samples) if "generation" in self.card.problem else chains)

    def next_state(self, state):
        self.steps += 1
        time.sleep(STEP_SECONDS)
        if self.steps == FAULTY_STEP:
            fail()
        if SIZE and not isinstance(state, Text) and state > int(SIZE):
            too_large()
        return state

    def append_tokens(self, batch, tokens):
        """Texts after which the token 1 is likelier than 0, if that is the fault."""
        batch.inputs.logits = [[[0.0, 1.0 if FAULT == "generation" else -1.0]] * (len(tokens) + 1)]
        return batch, [[token for ((token,),) in tokens]]

    def chain_sample(self, state):
        leaps = self.card.problem["sampler"]["leapfrog_steps"] - (FAULT == "trajectory")
        return ChainSample(
            [[float(self.steps)]] * state,
            [-1.0] * state,
            [False] * state,
            [-9.0] * state,
            [0.1] * state,
            1 + self.steps * leaps,
        )

    def weights(self):
        return {}

    def gradients(self):
        return {"first.weight": 1.0, "last.weight": 0.34 if FAULT == "gradients" else 1.0}

    def observed(self):
        dropout = 0.0 if FAULT == "dropout" else self.card.problem["model"].get("dropout", 0.0)
        return FirstStep(self.samples - (FAULT == "samples"), {"first.dropout": dropout})

    def reset_peak_memory(self):
        self.edges = (*self.edges, self.steps)

    def usage(self):
        if FAULT == "silent":
            time.sleep(600)
        if FAULT == "mute":
            raise OSError("the double's library is gone")
        return Usage(8.0, 16.0, self.steps * 0.5, 4.0 if len(self.edges) == 2 else "the window has no end")

    def conditions(self):
        if FAULT == "mute":
            raise OSError("the double's library is gone")
        return DeviceConditions({"temperature": {"value": 30 + self.steps, "unit": "°C"}}, None)

    def mark(self):
        return time.perf_counter()

    def seconds_between(self, earlier, later):
        return LEAST if FAULT == "timeless" else later - earlier

    def synchronise(self):
        pass

    def close(self):
        if FAULT == "linger":
            wait_until_read()
            os.write(MESSAGES, b" ")  # no message yet; whoever reads it has dealt with those before
            wait_until_read()
            never_return("lingers")


def fail():
    if FAULT in ("raise", "linger"):
        raise ValueError("the double was told to fail")
    if FAULT == "memory":
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes")
    if FAULT == "compile_failure":
        raise RunError("compile_failure", "the double's compiler gave up")
    if FAULT == "segmentation":
        os.kill(os.getpid(), signal.SIGSEGV)
    if FAULT == "says":
        says()
    if FAULT == "long_line":
        speak_too_long()
    if FAULT == "hang":
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        never_return("hangs")


def end_early():
    """Make the loop believe that a few steps are all that was asked for."""
    from unittest import mock  # late, as few runs need it

    from entrypoints.worker.phases import PhasedRun

    mock.patch.object(PhasedRun, "enough", lambda self, configuration: self.steps >= FAULTY_STEP).start()


def says():
    """Send what the test wants to be sent, as if it were a message."""
    os.write(MESSAGES, os.environ["DOUBLE_SAYS"].encode() + b"\n")


def speak_too_long():
    """Send a line that is longer than any message."""
    for _ in range(20):
        os.write(MESSAGES, b"." * (1 << 20))
    os.write(MESSAGES, b"\n")


def daemonise():
    """Start a process as daemons do, so that it is in no session of ours and its parent is gone."""
    starter = os.fork()
    if not starter:
        nothing = subprocess.DEVNULL
        sleeper = subprocess.Popen(
            ["sleep", "600"], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )
        os.write(2, f"the double started {sleeper.pid}\n".encode())
        os._exit(0)
    os.waitpid(starter, 0)


def wait_until_read():
    """Until the parent has read all of this child's messages."""
    while int.from_bytes(fcntl.ioctl(MESSAGES, termios.FIONREAD, bytes(4)), sys.byteorder):
        time.sleep(0.01)


def never_return(what):
    """Say so, and outlast any test. Where nobody kills this process it tells that, too, so that the test fails."""
    os.write(2, f"the double {what}\n".encode())
    time.sleep(600)
    os.write(2, b"the double was left alone\n")
    os._exit(9)


def too_large():
    if FAULT == "capacity":
        raise RuntimeError("out of memory, said the double")
    if FAULT == "brittle":
        raise ValueError("the double broke")
    if FAULT == "feast":
        bytearray(os.urandom(1) * (200 * 2**20))
    if FAULT == "stuck":
        time.sleep(600)
