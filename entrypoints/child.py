"""The process that runs a workload: imports the framework, opens the session and tells the parent what happens."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Iterator, NoReturn, Sequence

from entrypoints import cards, memory
from entrypoints.cards import Card
from entrypoints.configuration import Configuration
from entrypoints.data.folder import list_images
from entrypoints.lifeline import die_with_parent
from entrypoints.loop import Loop
from entrypoints.messages import Data, Ended, Failed, Phase, Sender
from entrypoints.session import Batch, OptimizerRule
from entrypoints.statuses import RunError, UsageError

# What frameworks say when memory is short; there is no exception class that all of them share.
OUT_OF_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "cannot allocate memory")

STOPPING = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """The parent asked for an orderly end. No Exception, so that no library swallows it."""


def main(argv: Sequence[str]) -> int:
    """Run the configuration that stands on standard input; `argv` is --child, the pipe and the parent's id."""
    descriptor, parent = (int(value) for value in argv[1:3])
    die_with_parent(parent)
    memory.die_first()
    os.set_inheritable(descriptor, False)
    for number in STOPPING:
        signal.signal(number, _stop)
    send = Sender(descriptor)
    with contextlib.ExitStack() as cleanup:  # after the last word: a broken device may never let go
        try:
            configuration = Configuration(**json.load(sys.stdin))
            memory.limit_process(configuration.memory_limit_mib)
            run(configuration, send, cleanup)
            send(Ended(time.monotonic()))
        except Stopped:
            return 128 + signal.SIGTERM  # the parent knows why
        except Exception as error:
            memory.unlimit_process()  # what follows needs some
            traceback.print_exc()
            send(failed(error))
            return 1
    return 0


def _stop(*_: object) -> NoReturn:
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # a scheduler may tell every process of a job, and more than once
    raise Stopped


def failed(error: Exception) -> Failed:
    """How the run ended, told from what was raised."""
    if isinstance(error, RunError):
        return Failed(error.state, error.message)
    if isinstance(error, UsageError):  # the parent saw the data, and they have changed since
        return Failed("data_error", str(error))
    text = ": ".join(filter(None, (type(error).__name__, str(error))))
    short = isinstance(error, MemoryError) or any(sign in text.lower() for sign in OUT_OF_MEMORY)
    return Failed("out_of_memory" if short else "crashed", text[:1000])


def run(configuration: Configuration, send: Sender, cleanup: contextlib.ExitStack) -> None:
    """Every phase of one run, in order."""
    card = cards.load()[configuration.workload]
    send(Phase("import", time.monotonic()))
    device = importlib.import_module(f"entrypoints.devices.{configuration.device}")
    framework = f"entrypoints.workloads.{configuration.framework}"
    build, loader = (importlib.import_module(f"{framework}.{name}") for name in ("build", "loader"))
    send(build.software())
    device.prepare(configuration.precision, configuration.threads)
    send(Phase("data", time.monotonic()))
    batches = open_batches(loader, card, configuration, send)
    send(Phase("model", time.monotonic()))
    rule = OptimizerRule.from_problem(card.problem["optimizer"], configuration.batch_size)
    session = device.open_session(build.model(card, configuration.seed), rule, configuration.precision)
    cleanup.callback(session.close)
    send(session.facts)
    if configuration.data == "synthetic":
        batches = itertools.repeat(session.place(next(batches)))
    loop = Loop(session, configuration.task, batches, send)
    try:
        loop.run(configuration)
    except Stopped:
        loop.settle()
        raise


def open_batches(loader: ModuleType, card: Card, configuration: Configuration, send: Sender) -> Iterator[Batch]:
    """The source of batches that the configuration names: a single one where they are synthetic."""
    size, seed = configuration.batch_size, configuration.seed
    if configuration.data_folder is None:
        send(Data(samples=size, classes=None))
        return iter([loader.synthetic_batch(card, size, seed)])
    folder = Path(configuration.data_folder)
    listing = list_images(folder)
    send(Data(len(listing.images), len(listing.classes)))
    workers = configuration.data_workers
    batches: Iterator[Batch] = loader.folder_batches(card, configuration.task, folder, listing, size, workers, seed)
    return batches
