"""Metering around a run. Of the tasks that a launcher started on a node, a single one counts what a device used."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import time
from typing import Callable, Iterable, Iterator, NamedTuple, Sequence, cast

from entrypoints.contract.group import Place
from entrypoints.metering.energy import Metered, mean_watts, rest_needed
from entrypoints.metering.meter import Absence, Meter, Watched
from entrypoints.metering.sampling import Recording, Sampler, StateSampler
from entrypoints.metering.selection import open_meter
from entrypoints.planning.configuration import Configuration
from entrypoints.runs.launch import launcher_of
from entrypoints.runs.supervise import Orders

_taken: dict[bytes, socket.socket] = {}  # by address; a claim ends with its process


RECENT = 1.0  # seconds over which power is averaged for people


class Metering(NamedTuple):
    """What a meter has to say: at the end its whole recording, in between the power in W of its devices together.

    `rest`, if there is one, measures idle power, while workers that have started may import their framework.
    """

    recording: Callable[[], Metered]
    watts: Callable[[], float | None]
    rest: Callable[[], None] | None = None


@contextlib.contextmanager
def metering(
    resolved: Configuration, orders: Orders, places: Sequence[Place], note: Callable[[str], None]
) -> Iterator[Metering]:
    """Meter power of the devices of ranks while the context is open, idle power first, or in `Metering.rest`. `note`
    gets what takes time, for people."""
    meter = open_meter(resolved.meter, resolved.device, [place.local_rank for place in places])
    if isinstance(meter, Absence):
        absence = meter
        yield Metering(lambda: absence, lambda: None)
        return
    sampler = Sampler(meter, resolved.meter_period_seconds)
    states = _watching(meter)
    elsewhere = counted_elsewhere(meter.facts.source, meter.facts.devices)
    # A rank that does not count rests too: otherwise the counting one would take its work for idle power.
    with contextlib.ExitStack() as sampling:
        for each in () if elsewhere else filter(None, (sampler, states)):
            sampling.enter_context(each.running())

        def rest() -> None:
            source, devices = meter.facts.source, ", ".join(meter.facts.devices)
            seconds = max(resolved.idle_seconds, rest_needed(meter.facts, resolved.meter_period_seconds))
            note(f"measuring idle power for {seconds:g} s ({source}: {devices})")
            orders.rest(seconds)
            sampler.idle_until = time.monotonic()

        if resolved.idle_seconds and not meter.facts.imports_unseen:
            rest()
        yield Metering(
            (lambda: _recorded(sampler, states)) if elsewhere is None else lambda: Absence(elsewhere, elsewhere=True),
            lambda: None if elsewhere else mean_watts(sampler.recording(RECENT)),
            rest if resolved.idle_seconds and meter.facts.imports_unseen else None,
        )


def _watching(meter: Meter) -> StateSampler | None:
    """Return what reads the states of the meter's devices, if it reports them."""
    period = meter.facts.watch_period
    return None if period is None else StateSampler(cast(Watched, meter), period)


def _recorded(sampler: Sampler, states: StateSampler | None) -> Recording:
    return sampler.recording()._replace(states=states.recording() if states else None)


def counted_elsewhere(source: str, devices: Iterable[str]) -> str | None:
    """Return why another rank counts what these devices use; None if this one does, from now on until it ends.

    Ranks of a step read the same devices or different ones: a claim is for all devices of a meter.
    """
    launcher = launcher_of(os.environ)
    if launcher is None:
        return None
    rank, step = launcher.local_task, launcher.step
    claim = (str(os.getuid()), *(os.environ[name] for name in step), source, *devices)
    address = b"\0sifmark-" + hashlib.sha256(repr(claim).encode()).hexdigest().encode()
    try:
        _take(address)
    except OSError as error:
        why = "another rank of this node counts" if error.errno == errno.EADDRINUSE else f"{error.strerror}: who counts"
        return f"{why} what {', '.join(devices)} used; this one is {rank}={os.environ[rank]}"
    return None


def _take(address: bytes) -> None:
    """Bind a socket without a file: the kernel gives an address to one process, and releases it when that ends."""
    if address in _taken:
        return
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        taken.bind(address)
    except OSError:
        taken.close()
        raise
    _taken[address] = taken
