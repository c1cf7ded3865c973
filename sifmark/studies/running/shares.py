"""Disjoint shares of this machine's devices and processors for concurrent runs, also across processes."""

import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.core.locks import LockHeldError, file_lock
from sifmark.engines import APPTAINER, Engine
from sifmark.engines.locate import access_of_image
from sifmark.recipes.hardware import hardware_of

_THREADS = "--threads"  # an image's option


@dataclass(frozen=True)
class Machine:
    """What the runs of one image divide among themselves."""

    cores: tuple[int, ...]  # processors that this process may use
    devices: tuple[str, ...] = ()  # as the variable names them; empty: they cannot be divided
    variable: str = ""
    jobs: int = 1  # runs side by side, at most


@dataclass(frozen=True)
class Share:
    """What a run has for itself until it is released."""

    cores: tuple[int, ...]
    environment: dict[str, str]
    descriptors: tuple[int, ...]  # of the locks, for processes that hold them too
    locks: ExitStack

    def release(self) -> None:
        """Let others have it, as soon as no process of the run has the locks any more."""
        self.locks.close()


def machine_for(engine: Engine, address: str, devices: int | None, jobs: int) -> Machine:
    """Return how this machine is divided among runs of an image; `devices` are those of a node if that is known.

    With `jobs` of 0, as many runs are side by side as there are devices, and one where the image needs none. Raises
    UsageError for more than one where runs cannot be kept apart.
    """
    access = access_of_image(engine, address)
    hardware = hardware_of(access) if access else None
    variable = hardware.share if hardware else ""
    names = _device_names(variable, devices) if variable else ()
    cores = tuple(sorted(os.sched_getaffinity(0)))
    if engine.name != APPTAINER:
        if jobs > 1:
            cause = f"--jobs {jobs}: processors cannot be divided among containers of {engine.name}"
            raise UsageError(cause, "use --jobs 1, or --engine apptainer", code="invalid-option")
        return Machine(cores, names, variable)
    if access is not None and not names and jobs > 1:
        cause = f"--jobs {jobs}: the devices of {Path(address).name} cannot be divided, or their number is not known"
        raise UsageError(cause, "use --jobs 1, or state devices of the system in the study", code="invalid-option")
    return Machine(cores, names, variable, min(jobs or max(1, len(names)), len(cores)))


class Shares:
    """Who has which processor and device of this host, as locks in a folder that its processes share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / socket.gethostname()
        self._turn = ExitStack()  # with the lock of whoever is next
        self._is_next = False

    def take(self, machine: Machine, arguments: Sequence[str], devices: int) -> Share | None:
        """Return a share for a run with these arguments on so many devices; None if too little is free now.

        Who got none is next, and others get none before: those that have shares would else take them again and again.
        """
        if not self._is_next:
            try:
                self._turn.enter_context(file_lock(self._folder / ".next", wait=False))
            except LockHeldError:
                return None
            self._is_next = True
        share = self._take(machine, arguments, devices)
        if share is not None:
            self.leave()
        return share

    def leave(self) -> None:
        """Wait for no share any more."""
        self._turn.close()
        self._is_next = False

    def _take(self, machine: Machine, arguments: Sequence[str], devices: int) -> Share | None:
        count = min(devices, len(machine.devices))
        with ExitStack() as locks:
            cores = self._take_some(locks, "cpu", machine.cores, _cores_of(machine, arguments, count))
            names = self._take_some(locks, machine.variable, machine.devices, count)
            if cores is None or names is None:
                return None
            chosen = {machine.variable: ",".join(name for name, _ in names)} if names else {}
            descriptors = tuple(descriptor for _, descriptor in (*cores, *names))
            bound = tuple(int(name) for name, _ in cores) if len(cores) < len(machine.cores) else ()
            return Share(bound, chosen, descriptors, locks.pop_all())
        return None

    def _take_some(
        self, locks: ExitStack, kind: str, names: Sequence[int | str], count: int
    ) -> list[tuple[str, int]] | None:
        """Lock the first `count` of what is free. Return the names with the descriptors of their locks, or None."""
        taken: list[tuple[str, int]] = []
        for name in map(str, names):
            if len(taken) == count:
                break
            try:
                path = self._folder / f"{kind}-{name.replace('/', '_')}"
                taken.append((name, locks.enter_context(file_lock(path, wait=False))))
            except LockHeldError:
                continue
        return taken if len(taken) == count else None


def _cores_of(machine: Machine, arguments: Sequence[str], devices: int) -> int:
    """Return how many processors a run gets: by its devices, and no fewer than the threads it asks for."""
    if machine.jobs == 1:
        return len(machine.cores)
    part = devices / len(machine.devices) if machine.devices else 1 / machine.jobs
    return max(1, min(len(machine.cores), max(int(len(machine.cores) * part), threads_of(arguments))))


def threads_of(arguments: Sequence[str]) -> int:
    """Return how many threads the arguments of an image ask for; 0 if they leave it to the image."""
    asked = (int(value) for word, value in pairwise(arguments) if word == _THREADS and value.isdecimal())
    return max(asked, default=0)


def _device_names(variable: str, devices: int | None) -> tuple[str, ...]:
    """Return what the variable already chooses, as a scheduler sets it, and else numbers."""
    chosen = tuple(name for name in os.environ.get(variable, "").split(",") if name)
    return chosen[:devices] or tuple(map(str, range(devices or 0)))
