"""The process that has the framework: it runs a workload, or its correctness check, and reports to the parent."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import json
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator, NoReturn, Sequence, TypeVar

from entrypoints.contract import cards
from entrypoints.contract.cards import Card, generates, tabular
from entrypoints.contract.choices import SHARDED, MeasuredPeak
from entrypoints.contract.group import Place
from entrypoints.contract.messages import Data, Ended, Failed, Phase, Placed, Sender, Skipped, Waited
from entrypoints.contract.points import (
    CHECKPOINT,
    HOST_DEVICE,
    MEMORY_COPY,
    MICROBENCHMARK,
    LastLevelCache,
    operation_of,
)
from entrypoints.contract.session import Batch, DeviceConditions, Session, Usage, rule_of
from entrypoints.contract.statuses import RunError, UsageError
from entrypoints.data import formats, table
from entrypoints.metering.selection import addresses
from entrypoints.planning.configuration import Configuration
from entrypoints.results import peaks
from entrypoints.serving.load import Serving
from entrypoints.system import caches, gpu_software, host, logs, memory, placement
from entrypoints.system.facts import MIB
from entrypoints.system.parent_death import die_with_parent
from entrypoints.worker import memory_estimate, point_loop
from entrypoints.worker.generation import Generation
from entrypoints.worker.loop import Loop
from entrypoints.worker.phases import PhasedRun
from entrypoints.worker.point_loop import PointLoop
from entrypoints.worker.request_streams import RequestStreams
from entrypoints.worker.sampling_loop import SamplingLoop
from entrypoints.worker.target_pursuit import Evaluation, TargetPursuit

# Error texts that mean that memory ran out; frameworks share no exception class for it.
OUT_OF_MEMORY = (
    *("not enough memory", "can't allocate memory", "out of memory", "cannot allocate memory"),
    "oom when allocating",  # TensorFlow
    # GPU libraries that get no memory beside PyTorch's own for handles and workspaces.
    *("cublas_status_alloc_failed", "hipblas_status_alloc_failed", "cudnn_status_alloc_failed"),
    # What cuBLAS says when the device has no memory left for its handle: github.com/pytorch/serve, issue 1993.
    *("cublas_status_not_initialized when calling `cublascreate", "failed to create cublas handle"),
    "hipblas_status_not_initialized when calling `hipblascreate",
    "device_allocation_failed",  # cuDNN from 9 on
    "module:pt_devmem allocation failed",  # Gaudi
    *("rocblas_status_memory_error", "error_out_of_device_memory", "error_out_of_host_memory"),  # the last: Intel's
)
# Error texts that mean that this processor lacks what the precision needs.
UNSUPPORTED = ("could not create a primitive descriptor",)  # oneDNN, of an LSTM in bf16 without AVX-512

UNLIMITED_MIB = 1e12  # MiB, where free memory cannot be read
STOPPING = (signal.SIGTERM, signal.SIGINT)
T = TypeVar("T")


class Stopped(BaseException):
    """The parent asked for an orderly end. It is not an Exception, so that no library swallows it."""


def main(argv: Sequence[str]) -> int:
    """Do the job read from standard input and return the exit code; `argv` is --child, the pipe and the parent's id."""
    descriptor, parent = (int(value) for value in argv[1:3])
    die_with_parent(parent)
    memory.die_first()
    os.set_inheritable(descriptor, False)
    for number in STOPPING:
        signal.signal(number, _stop)
    send = Sender(descriptor)
    with contextlib.ExitStack() as cleanup:  # runs after the last message, since a broken device may hang
        try:
            job = json.loads(sys.stdin.readline())
            configuration = Configuration(**job["configuration"])
            JOBS[job["job"]](configuration, Place(*job["place"]), send, cleanup)
            send(Ended(time.monotonic()))
        except Stopped:
            return 128 + signal.SIGTERM  # the parent knows why
        except Exception as error:
            memory.unlimit_process()  # the traceback and the message need some
            failure = describe_failure(error)
            if failure.state in ("crashed", "compile_failure"):
                traceback.print_exc()
            send(failure)
            return 1
    return 0


def _stop(*_: object) -> NoReturn:
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # a scheduler may signal every process of a job, more than once
    raise Stopped


def describe_failure(error: Exception) -> Failed:
    """Return how the run ended, according to the exception."""
    if isinstance(error, RunError):
        return Failed(error.state, error.message)
    if isinstance(error, UsageError):  # the parent checked the data, and they have changed since
        return Failed("data_error", str(error))
    text = ": ".join(filter(None, (type(error).__name__, str(error))))
    state = "crashed"
    if isinstance(error, MemoryError) or any(sign in text.lower() for sign in OUT_OF_MEMORY):
        state = "out_of_memory"
    elif any(sign in text.lower() for sign in UNSUPPORTED):
        state = "unsupported"
    return Failed(state, text[:1000])


def run(
    configuration: Configuration, place: Place, send: Sender, cleanup: contextlib.ExitStack, waits: bool = False
) -> None:
    """Run every phase of a run, in order; one that `waits` goes on after the import when it is told to begin."""
    card = configuration.computed(cards.load()[configuration.workload])
    send(Phase("import", time.monotonic()))
    if place.world > 1:
        send(placed(configuration, place))
    place_files(configuration, cleanup)
    device, build, loader = import_modules(configuration)
    if waits:
        wait_to_begin(send)
    software = build.software()
    device_libraries = {name: version for name, version in device.libraries().items() if version}
    send(software._replace(libraries={**software.libraries, **device_libraries}))
    use_device(device, configuration, place)
    device.prepare(configuration.precision, configuration.threads, configuration.concurrency or 1)
    if configuration.tune_kernels:
        device.tune()
    memory_estimate.require_memory(card, configuration, device.free_mib())
    if configuration.task == MICROBENCHMARK:
        build.family(card).require(operation_of(card.problem), configuration.device, configuration.precision)
    memory.limit_process(configuration.memory_limit_mib)
    if configuration.serving:
        serve(card, configuration, configuration.serving, device, send, cleanup)
        return
    group = open_group(configuration, place, send, cleanup)
    if group and configuration.device != "ipu":  # whose own links nobody reports
        send(group["group"].connected())
    send(Phase("data", time.monotonic()))
    data_place = configuration.data_place(place)
    inputs = open_inputs(loader, card, configuration, data_place, send)
    send(Phase("model", time.monotonic()))
    rule = rule_of(card.problem, configuration.batch_size, configuration.task)
    model = built_model(build, card, configuration)
    how = (configuration.precision, configuration.compile, configuration.partition)
    session = device.open_session(model, rule, *how, **group)
    cleanup.callback(session.close)
    send(session.facts)
    require_device_of_peak(configuration.measured_peak, session.facts.name)
    send(ask_device(session.conditions, DeviceConditions.unknown))
    evaluation = open_evaluation(loader, card, configuration, data_place, send)
    closers = cleanup.enter_context(contextlib.ExitStack())
    cleanup.callback(report_device_state, session, send)  # runs before it waits for streams, whose device may hang
    if configuration.task == MICROBENCHMARK:
        free = device.free_mib()
        work: PhasedRun = open_points(card, session, configuration, place, free, send, group.get("group"), cleanup)
    else:
        work = open_work(card, session, inputs, evaluation, configuration, data_place, send, closers)
    work.group, work.at_edge = group.get("group"), session.reset_peak_memory
    work.executed = getattr(session, "executed", work.executed)  # a session of another framework may not know
    try:
        work.run(configuration)
    except Stopped:
        work.settle()
        raise


def wait_to_begin(send: Sender) -> None:
    """Wait for the parent's word, or for the end of it."""
    began = time.monotonic()
    sys.stdin.readline()
    send(Waited(began, time.monotonic()))


def serve(
    card: Card,
    configuration: Configuration,
    serving: Serving,
    device: ModuleType,
    send: Sender,
    cleanup: contextlib.ExitStack,
) -> None:
    """Run every phase of a run on an engine, from its import on."""
    from entrypoints.worker import serving_run  # late, since it imports NumPy

    engine = serving_run.load_engine(serving["engine"])
    send(Phase("data", time.monotonic()))
    send(Data(samples=1, classes=None))
    work = serving_run.ServingRun(engine, card, configuration, serving, send)
    send(Phase("model", time.monotonic()))
    longest = serving["prompt_lengths"][1] + serving["answer_lengths"][1]
    folder = cleanup.enter_context(serving_run.model_folder(card, configuration.precision, longest))

    def started(name: str) -> None:
        session = device.served_by(name, configuration.tensor)
        send(session.facts)
        send(ask_device(session.conditions, DeviceConditions.unknown))
        cleanup.callback(report_device_state, session, send)

    serving_run.until_stopped(work.whole(str(folder), longest, started))


def built_model(build: ModuleType, card: Card, configuration: Configuration) -> Any:
    """Return the card's model, which computes as the run wants it.

    If it is large for one host or device, its weights are made part by part by a session that can do so: of ranks that
    divide a model, and of a model that only answers, which may have them in half precision.
    """
    divided = configuration.strategy in SHARDED or configuration.stages * configuration.tensor > 1
    part_by_part = configuration.device != "ipu" and (divided or configuration.task == "inference")
    make = getattr(build, "deferred_model", build.model) if part_by_part else build.model
    model = make(card, configuration.seed)
    if configuration.fp8_scaling:
        model = build.in_float8(model, configuration.device, configuration.fp8_scaling)
    return build.recomputed(model) if configuration.recomputed_by_framework else model


def probe_numerics(configuration: Configuration, place: Place, send: Sender, cleanup: contextlib.ExitStack) -> None:
    """Run the correctness check in place of a run."""
    if place.world > 1:
        placed(configuration, place)
    place_files(configuration, cleanup)
    modules = import_modules(configuration)  # imports the device first, since it may be missing
    if configuration.serving:
        from entrypoints.worker import serving_check  # late, as `probe`

        modules[0].prepare(configuration.precision, configuration.threads)
        card = cards.load()[configuration.workload]
        serving_check.run(card, configuration, configuration.serving, send)
        return
    from entrypoints.worker import probe  # late, since it imports NumPy

    use_device(modules[0], configuration, place)
    if place.world > 1:  # some frameworks start up when ranks meet
        modules[0].prepare(configuration.precision, configuration.threads)
    group = open_group(configuration, place, send, cleanup)
    probe.run(cards.load()[configuration.workload], configuration, *modules, send, group)


def placed(configuration: Configuration, place: Place) -> Placed:
    """Bind this process, if that is not left to the site, and return where it runs.

    On a CPU a rank has its share of the processors, otherwise those nearest to its device that it may use.
    """
    usable = os.sched_getaffinity(0)
    if configuration.cpu_bind == "auto":
        own = placement.share_of(usable, *place.share)
        if configuration.device != "cpu":
            own = placement.nearest(addresses(configuration.device, place.local_rank)) & usable or usable
        placement.bind(own)
        usable = own
    return Placed(socket.gethostname(), host.ranges(usable), placement.memory_nodes(usable))


def use_device(device: ModuleType, configuration: Configuration, place: Place) -> None:
    """Let a rank use its own device of the node, and as the run wants it, before anything else asks which one it is."""
    if hasattr(device, "use_memory"):  # of a kind that is configured before a model is built
        device.use_memory(configuration.partition.memory)
    if place.world > 1:
        _strategies(configuration).use_device(place, configuration.device)


def _strategies(configuration: Configuration) -> ModuleType:
    return importlib.import_module(f"entrypoints.devices.{configuration.framework}.strategies.group")


def open_group(
    configuration: Configuration, place: Place, send: Sender, cleanup: contextlib.ExitStack
) -> dict[str, Any]:
    """Return the ranks of the run, joined, as an argument of a session; no argument for one rank."""
    if place.world == 1:
        return {}
    group = _strategies(configuration).join(place, configuration.device, configuration.parallelism, send)
    cleanup.callback(group.close)
    return {"group": group}


def place_files(configuration: Configuration, cleanup: contextlib.ExitStack) -> None:
    """Let libraries keep what they make where there is room, logs where they may, and find the driver, before they are
    imported."""
    if configuration.device == "cuda":
        cleanup.enter_context(gpu_software.driver_for_triton(os.environ))
    if configuration.compile or configuration.device == "cuda":
        os.environ.update(caches.moved(os.environ))
    os.environ.update(logs.moved(os.environ))


def import_modules(configuration: Configuration) -> tuple[ModuleType, ModuleType, ModuleType]:
    """Return the device's module and the framework's `build` and `loader`."""
    framework = f"entrypoints.workloads.{configuration.framework}"
    names = (
        f"entrypoints.devices.{configuration.framework}.{configuration.device}",
        f"{framework}.build",
        f"{framework}.loader",
    )
    device, build, loader = map(importlib.import_module, names)
    return device, build, loader


def open_evaluation(
    loader: ModuleType, card: Card, configuration: Configuration, place: Place, send: Sender
) -> Evaluation | None:
    """Return the evaluation of all samples once, or None if there are no files or no target."""
    path = configuration.evaluation_path or configuration.data_path
    if configuration.goal is None or path is None:
        return None
    task = "inference" if configuration.evaluation_path else "training"  # selects one of the sets in the folder
    _, source = formats.open_for(card, Path(path), task, configuration.framework, checked=True)
    for name in source.lost if configuration.evaluation_path else ():  # otherwise reported with the training data
        send(Skipped(name))
    size = min(configuration.batch_size // place.world, source.samples)
    workers = configuration.data_workers or 0
    return Evaluation(
        lambda: loader.evaluation_batches(card, source, size, workers), lambda: formats.grader(source), place=place
    )


def open_work(
    card: Card,
    session: Session,
    inputs: Iterator[Any],
    evaluation: Evaluation | None,
    configuration: Configuration,
    place: Place,
    send: Sender,
    cleanup: contextlib.ExitStack,
) -> PhasedRun:
    """Return what keeps the session busy: request streams, a sampling loop, generation, or a loop over batches."""
    if configuration.concurrency:
        streams = RequestStreams(session, configuration.concurrency, inputs, send)
        cleanup.callback(streams.close)
        return streams
    if configuration.task == "sampling":
        return SamplingLoop(session, session.to_device(next(inputs)), configuration.batch_size, card, send)
    if configuration.data == "synthetic":
        batch = session.to_device(next(inputs))
        inputs = itertools.repeat(batch)
        evaluation = evaluation or Evaluation(lambda: [batch], own=True, place=place)
    elif not generates(card.problem, configuration.task):
        inputs = session.feed(inputs, targets=configuration.task == "training")
    if generates(card.problem, configuration.task):
        return Generation(session, inputs, card.problem["generation"], configuration.precision, send)
    target = configuration.goal
    pursuit = TargetPursuit(target, session, evaluation, send) if target and evaluation else None
    return Loop(session, configuration.task, inputs, send, card, configuration.precision, pursuit)


def require_device_of_peak(peak: MeasuredPeak | None, name: str | None) -> None:
    """Raise RunError (`unsupported`) if a measured peak is that of another device."""
    if peak and peak["device"] != name:
        raise RunError("unsupported", f"--measured-peak: it is of {peak['device']}, and this device is {name}")


def open_points(
    card: Card,
    session: Session,
    configuration: Configuration,
    place: Place,
    free_mib: float | None,
    send: Sender,
    group: Any,
    cleanup: contextlib.ExitStack,
) -> PointLoop:
    """Return the loop over the points of a micro-benchmark, the same ones on every rank, and report which they are."""
    what = operation_of(card.problem)
    on_host = configuration.device == "cpu" or what in (CHECKPOINT, HOST_DEVICE)
    hosts = [memory.free_mib(), configuration.memory_limit_mib] if on_host else []
    hosts += [shutil.disk_usage(os.curdir).free / MIB] if what == CHECKPOINT else []
    free = min((mib for mib in (free_mib, *hosts) if mib is not None), default=UNLIMITED_MIB)
    if configuration.device == "cpu":
        free /= place.local_world
    if group:
        free = group.smallest(free)
    cache = last_level_cache(session) if what == MEMORY_COPY else None
    if cache:
        send(cache)
    measured, omitted = point_loop.plan(card, configuration, place.world, free, cache)
    for point in measured:
        send(point)
    for left_out in omitted:
        send(left_out)
    operation: Any = session.operation(measured, place)
    if what == CHECKPOINT:  # which alone holds more than memory
        cleanup.callback(operation.close)
    return PointLoop(session, operation, measured, configuration.precision, send)


def last_level_cache(session: Session) -> LastLevelCache | None:
    """Return the caches before the device's memory: those that its vendor states, or what else says it."""
    return peaks.last_level_cache(session.facts) or session.last_level_cache()


def report_device_state(session: Session, send: Sender) -> None:
    """Report the device's usage and its conditions. Called after the run's last message, before the session closes."""
    send(ask_device(session.usage, Usage.unknown))
    send(ask_device(session.conditions, DeviceConditions.unknown))


def ask_device(ask: Callable[[], T], unknown: Callable[[str], T]) -> T:
    """Return what `ask` returns, or `unknown` with the reason if the device's library raises."""
    try:
        return ask()
    except Exception as error:  # vendor libraries raise exceptions of many classes
        return unknown(f"the device could not be asked: {type(error).__name__}: {error}"[:300])


def open_inputs(
    loader: ModuleType, card: Card, configuration: Configuration, place: Place, send: Sender
) -> Iterator[Any]:
    """Return an iterator over batches; for request streams, over callables that make each request's batch.

    Synthetic data and tables are a single batch, of which a rank has the share of its place among the replicas.
    """
    size, seed = configuration.partition.samples, configuration.seed
    if configuration.task == MICROBENCHMARK:
        send(Data(samples=place.world, classes=None))
        return iter(())
    if tabular(card.problem):
        return iter([open_table(loader, card, configuration, send)])
    if configuration.data_path is None:
        send(Data(samples=size * place.world, classes=None))
        if configuration.concurrency:
            return loader.synthetic_requests(card, size, seed)
        batch = loader.synthetic_batch(card, size * place.world, seed)
        return iter([batch if place.world == 1 else loader.slice_of(batch, place.rank * size, size)])
    what = Path(configuration.data_path), configuration.task, configuration.framework
    _, source = formats.open_for(card, *what, checked=True)
    workers = configuration.data_workers
    send(Data(source.samples, source.classes, source.part, workers))
    for name in source.lost:
        send(Skipped(name))
    if configuration.concurrency:
        return loader.source_requests(card, source, size, seed)
    return loader.source_batches(card, configuration.task, source, size, workers, seed, place)


def open_table(loader: ModuleType, card: Card, configuration: Configuration, send: Sender) -> Batch:
    """Return all observations of a table as one batch."""
    send(Data(samples=card.problem["input"]["observations"], classes=None))
    if configuration.data_path is None:
        batch: Batch = loader.synthetic_batch(card, configuration.batch_size, configuration.seed)
    else:
        batch = loader.table_batch(table.read(Path(configuration.data_path), card.problem["input"]))
    return batch


JOBS: dict[str, Callable[..., None]] = {
    "run": run,
    "waiting run": functools.partial(run, waits=True),
    "probe": probe_numerics,
}
