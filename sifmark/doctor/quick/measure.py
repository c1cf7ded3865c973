"""The short tests of a node, by an image, until a deadline: what they do not reach is left out, and said."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sifmark.core.console import status
from sifmark.core.errors import SifmarkError
from sifmark.core.permissions import file_state
from sifmark.core.process import run
from sifmark.core.settings import Settings
from sifmark.engines import Engine
from sifmark.engines.start import CheckedImage, check_image, find, run_options
from sifmark.recipes.labels import BUILD_KEY, DEVICE
from sifmark.results.documents import MetricValue
from sifmark.results.load import load_file
from sifmark.studies.analysis.node_measures import measure_node
from sifmark.studies.images import image_hashes

CPU = "cpu"
COMPLETED, INTERRUPTED, TIME_LIMIT = "completed", "interrupted", "time_limit"  # states of results
NO_RESULT, NOT_REACHED = "no_result", "not_reached"  # of tests without one
LEAST = 10.0  # seconds that must be left for a test to be started
END = 3.0  # seconds before the deadline at which an image is to stop by itself, to write what it has
_STEPS = ("--steps", "8", "--warmup-steps", "2", "--idle-seconds", "0")
_FEWER = ("--steps", "4", "--warmup-steps", "1", "--idle-seconds", "0")  # of a CPU, whose steps are longer
# The largest size on a CPU: rows of a matrix, bytes of a buffer, so that a test takes seconds.
_ON_CPU = {"matmul": "512", "memory_copy": "256M", "all_reduce": "1M"}


@dataclass(frozen=True)
class QuickTest:
    """A short test: a workload, and the words by which its image is asked for it."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class QuickOutcome:
    """How a test ended, and what it measured."""

    test: QuickTest
    state: str  # of its result, or NO_RESULT, NOT_REACHED
    message: str = ""
    seconds: float = 0.0
    measures: Mapping[str, MetricValue] = field(default_factory=dict)


def quick_tests(device: str, devices: int) -> list[QuickTest]:
    """Return the tests of a node: products of matrices, copies, links to the host and, of several devices, a sum."""
    names = ["matmul", "memory_copy"] + ["host_device"] * (device != CPU) + ["all_reduce"] * (devices > 1)
    return [QuickTest(name, (name, *_options(name, device, devices))) for name in names]


def _options(name: str, device: str, devices: int) -> Iterator[str]:
    yield from ("--replicas", str(devices)) if name == "all_reduce" else ()
    yield from (*_FEWER, "--largest-size", _ON_CPU[name]) if device == CPU else _STEPS


@dataclass(frozen=True)
class NodeImage:
    """The image that tests a node."""

    checked: CheckedImage
    device: str
    build_key: str

    @classmethod
    def open(cls, name: str, settings: Settings) -> "NodeImage":
        """Look at an image. Its hashes are kept with the state of its file, since to hash gigabytes takes a while.

        Raises SifmarkError if there is none of this name, or a required signature is not valid.
        """
        address, engine = find(name, settings)
        if settings.require_signature:
            checked = check_image(address, engine, settings, signed=True)
        else:
            checked = _unhashed(address, engine, settings)
        info = engine.image_info(checked.address)
        labels = info.labels if info else {}
        return cls(checked, labels.get(DEVICE, ""), labels.get(BUILD_KEY, ""))


def _unhashed(address: str, engine: Engine, settings: Settings) -> CheckedImage:
    address = engine.pinned(address)
    state = file_state(Path(address)) if Path(address).is_file() else None
    hashes = image_hashes(address, engine, settings)
    info = engine.image_info(address)
    key = info.labels.get(BUILD_KEY) if info else None
    facts = {"identity": hashes.identity, "digest": hashes.digest, "signer": None, "build_key": key}
    return CheckedImage(address, engine, facts, state)


def run_tests(image: NodeImage, tests: Sequence[QuickTest], node: str, deadline: float) -> list[QuickOutcome]:
    """Do tests one after the other until a deadline by the monotonic clock, and return how each ended."""
    outcomes = []
    for test in tests:
        left = deadline - time.monotonic()
        if left < LEAST:
            outcomes.append(QuickOutcome(test, NOT_REACHED, "no time was left"))
            continue
        status(f"{test.name}, {left:.0f} s left")
        outcomes.append(_run(image, test, node, left))
    return outcomes


def _run(image: NodeImage, test: QuickTest, node: str, left: float) -> QuickOutcome:
    with TemporaryDirectory(prefix="sifmark-") as folder:
        file = Path(folder) / f"{test.name}.json"
        limit = ("--time-limit", f"{max(1.0, left - END):.0f}")
        words = (*test.words, *limit, "--site", node, "--output", str(file))
        started, said = time.monotonic(), ""
        try:
            image.checked.require_unchanged()
            flags = run_options(image.checked.engine, image.checked.address, words)
            argv = image.checked.command(words, flags)
            done = run(argv, environment=image.checked.variables, time_limit=left, check=False)
            said = next(iter(reversed(done.tail)), "")
        except SifmarkError as error:  # it did not start, or not end
            said = error.cause
        seconds = time.monotonic() - started
        was_ended = seconds >= left - 1  # by us, with whatever it wrote then
        document = _document(file)
        if document is None:
            return QuickOutcome(test, TIME_LIMIT if was_ended else NO_RESULT, said, seconds)
        state = document["status"]["state"]
        state = TIME_LIMIT if state == INTERRUPTED and was_ended else state
        numbers = {name: number for name, number in measure_node(document).items() if number.value is not None}
        message = str(document["status"]["message"] or "").partition("\n")[0]
        return QuickOutcome(test, state, message, seconds, numbers)


def _document(file: Path) -> dict[str, Any] | None:
    with suppress(OSError, StopIteration):
        loaded = next(load_file(str(file)))
        return None if loaded.problems else loaded.document
    return None
