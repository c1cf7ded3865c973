"""AMD GPUs: ROCm's management library through its Python module amdsmi, or else the older rocm_smi library."""

from __future__ import annotations

from functools import partial
from typing import Any, Sequence

from entrypoints.metering.amd import gpus
from entrypoints.metering.amd.controller import LIMITS, Controller, of_any
from entrypoints.metering.amd.libraries import AmdSmi, RocmSmi, translated
from entrypoints.metering.meter import MeterError, MeterFacts, Reading, State, first_found

MEASURES = ("cuda",)
UPDATE_PERIOD = 0.1  # s; the driver's power is an average over milliseconds, its counter changes every millisecond
WATCH_PERIOD = 0.1  # s
NO_TRAFFIC = "amdsmi counts the traffic on the bus in a unit that it does not document"


class Amd:
    """One module, through whichever library is there. Energy is read of its first die, states of all `dies`."""

    def __init__(self, library: AmdSmi | RocmSmi, handle: Any, name: str, dies: Sequence[Any] = ()) -> None:
        self.library, self.handle = library, handle
        self.controllers = [Controller(library, die) for die in dies or (handle,) if isinstance(library, AmdSmi)]
        first = self.read_whole()
        if not (first.watts or first.joules):
            raise MeterError(f"{name} reports neither energy nor power")
        self.facts = MeterFacts(
            source=library.name,
            scope="package",
            devices=(name,),
            update_period=UPDATE_PERIOD,
            averaging=None,
            averaging_reason="the library does not say",
            has_power=bool(first.watts),
            has_counter=bool(first.joules),
            counter_ranges=(None,) if first.joules else (),
            simulated=library.simulated,
            limits=LIMITS,
            watch_period=WATCH_PERIOD if self.controllers else None,
            why_no_traffic=NO_TRAFFIC,
        )

    def read_whole(self) -> Reading:
        """Return whatever the library reports."""
        watts, joules = self.library.watts(self.handle), self.library.joules(self.handle)
        return Reading([] if watts is None else [watts], [] if joules is None else [joules])

    def read(self) -> Reading:
        """Return power and energy. Raises MeterError if the GPU reports more or less than at the start."""
        reading = self.read_whole()
        if bool(reading.watts) != self.facts.has_power or bool(reading.joules) != self.facts.has_counter:
            raise MeterError("the GPU reported more or fewer values than before")
        return reading

    def watch(self) -> tuple[State]:
        """Return the state of the module: of its dies the slowest clock, and what limits any of them."""
        states = [controller.state() for controller in self.controllers]
        return (
            State(
                clock=min((state.clock for state in states if state.clock is not None), default=None),
                memory_clock=min((state.memory_clock for state in states if state.memory_clock), default=None),
                limiting=of_any(state.limiting for state in states),
                limited=of_any(state.limited for state in states),
            ),
        )


def find(place: str | None, number: int = 0) -> Amd:
    """Return the module of the GPU that ROCm numbers so among those it may use, or the one numbered `place`."""
    return first_found({library.name: partial(_find, library, place, number) for library in (AmdSmi, RocmSmi)})


def address(number: int) -> str:
    """Return the PCI address of the GPU that ROCm numbers so. Raises MeterError."""

    def ask(make: type[AmdSmi] | type[RocmSmi]) -> str:
        library = make()
        return library.address(gpus.chosen(library, library.handles(), None, number))

    return first_found({library.name: partial(translated, ask, library) for library in (AmdSmi, RocmSmi)})


def _find(make: type[AmdSmi] | type[RocmSmi], place: str | None, number: int) -> Amd:
    return translated(lambda: _opened(make(), place, number))


def _opened(library: AmdSmi | RocmSmi, place: str | None, number: int) -> Amd:
    handles = library.handles()
    chosen = gpus.chosen(library, handles, place, number)
    if not any(module in library.market_name(chosen) for module in gpus.TWO_DIES):
        return Amd(library, chosen, f"{library.address(chosen)}{library.shared(chosen)}")
    dies = gpus.dies(library, handles, chosen)
    names = [library.address(die) for die in dies]
    whole = f"{' and '.join(names)}, the dies of a module"
    return Amd(library, dies[0], whole if len(names) > 1 else f"{names[0]} with the other die of its module", dies)
