"""The states of devices over a run: clocks, what limits them, and traffic on the bus, as columns of numbers."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence, Tuple

from entrypoints.metering.meter import State

Quantity = Tuple[str, str]  # of a state: a name below, and for limits that of the limit
CLOCK, MEMORY_CLOCK, RECEIVED, SENT = (("clock", ""), ("memory clock", ""), ("received", ""), ("sent", ""))
LIMITING, LIMITED = "limiting", "limited"  # now, and for how many s so far


class StateRecording(NamedTuple):
    """States over a run, by device and quantity; NaN where a reading lacks it."""

    period: float  # s between two readings
    times: Sequence[float]  # s of the monotonic clock, rising
    devices: Sequence[Mapping[Quantity, Sequence[float]]]
    last_failure: str | None

    def only(self, places: Sequence[int]) -> StateRecording:
        """Return the recording of only the devices at these places."""
        return self._replace(devices=[self.devices[place] for place in places])


def quantities(state: State) -> Mapping[Quantity, float]:
    """Return what a state reports as numbers."""
    values = {CLOCK: state.clock, MEMORY_CLOCK: state.memory_clock, RECEIVED: state.received, SENT: state.sent}
    return {
        **{quantity: value for quantity, value in values.items() if value is not None},
        **{(LIMITING, name): float(active) for name, active in state.limiting.items()},
        **{(LIMITED, name): seconds for name, seconds in state.limited.items()},
    }
