"""Rules about energy: it is that of the meter's devices, and everything else follows from it."""

from __future__ import annotations

import math
from typing import Iterator

from entrypoints.metering import names
from entrypoints.metering.meters import replay
from entrypoints.rules.facts import Facts, near
from entrypoints.rules.rule import ROUNDING, differ, rule

OF_ENERGY = (
    *("energy", "energy_per_unit", "energy_per_device", "units_per_watt_hour", "tokens_per_watt_hour"),
    *("throughput_per_watt", "power_mean", "energy_per_epoch"),
)
# What a device of each meter may be. Other meters count the device that computes, whatever it is.
SCOPES = {
    "nvml": ("package",),
    "amdsmi": ("package",),
    "rapl": ("package", "die"),
    "gcipuinfo": ("die", "board"),
}
JOULES_PER_WATT_HOUR = 3600.0


@rule(
    "without a meter there is no energy; with one it is `configuration.meter`, with its period, and of its scope",
    "Energy of another scope is of other parts of the machine.",
)
def energy_has_a_meter(facts: Facts) -> Iterator[str]:
    """Compare the meter with what was asked for."""
    power, asked = facts.document["power"], facts.configuration["meter"]
    if "source" not in power:
        for name in OF_ENERGY:
            if facts.metric(name) is not None:
                yield differ(f"metrics.{name}", facts.metric(name), None, "no meter")
        return
    source, name = power["source"], asked.partition(":")[0]
    if name == names.NONE or (name != names.AUTO and name != source):
        yield differ("power.source", source, name, "configuration.meter")
    if power["scope"] not in SCOPES.get(source, (power["scope"],)):
        yield differ("power.scope", power["scope"], ", ".join(SCOPES[source]), f"the meter {source}")
    if source == replay.NAME and not facts.document["provenance"]["simulated"]:
        yield "provenance.simulated: a replayed trace was not measured"


@rule(
    "`energy` = the sum of `power.devices`, each of which = its `power_mean` x the timed window",
    "Energy is counted for each device.",
    ROUNDING,
)
def energy_is_that_of_the_devices(facts: Facts) -> Iterator[str]:
    """Add the devices up again."""
    power, window = facts.document["power"], facts.window
    if "devices" not in power:
        return
    joules = [device["energy"]["value"] for device in power["devices"]]
    expected = None if None in joules else math.fsum(joules)
    yield from _unequal(facts, "energy", expected)
    for number, device in enumerate(power["devices"]):
        used, mean = device["energy"]["value"], device["power_mean"]["value"]
        product = None if mean is None or window is None else mean * window
        if used is not None and used < 0:
            yield f"power.devices.{number}.energy: {used!r} is negative"
        if (used is None) != (mean is None) or (used is not None and product is not None and not near(used, product)):
            yield differ(f"power.devices.{number}.power_mean", mean, used, "its energy over the timed window")


@rule(
    "`power_mean` = `energy` / window; `energy_per_unit` = `energy` / timed units; `energy_per_device` = `energy` / "
    "devices; `units_per_watt_hour` = 3600 x timed units / `energy`; `throughput_per_watt` = timed units / `energy`",
    "They are the same measurement in other words.",
    ROUNDING,
)
def efficiency_follows_from_energy(facts: Facts) -> Iterator[str]:
    """Divide by the energy again."""
    power, joules, window, units = facts.document["power"], facts.metric("energy"), facts.window, facts.timed_units
    if "devices" not in power:
        return
    expected: dict[str, float | None] = dict.fromkeys(
        name for name in OF_ENERGY if name not in ("energy", "energy_per_epoch")
    )
    if joules is not None and window and units > 0:
        expected.update(
            power_mean=joules / window,
            energy_per_unit=joules / units,
            energy_per_device=joules / len(power["devices"]),
        )
        if joules:
            rate = facts.metric("token_throughput")
            expected.update(
                units_per_watt_hour=JOULES_PER_WATT_HOUR * units / joules,
                throughput_per_watt=units / joules,
                tokens_per_watt_hour=None if rate is None else JOULES_PER_WATT_HOUR * rate * window / joules,
            )
    for name, value in expected.items():
        yield from _unequal(facts, name, value)


@rule(
    "`energy_per_epoch` = the mean of the epochs' energy but the first's",
    "The first epoch contains compilation and warm-up.",
    ROUNDING,
)
def energy_of_epochs_is_their_mean(facts: Facts) -> Iterator[str]:
    """Average the epochs again."""
    joules = [epoch["energy"]["value"] for epoch in facts.document["epochs"][1:]]
    expected = math.fsum(joules) / len(joules) if joules and None not in joules else None
    yield from _unequal(facts, "energy_per_epoch", expected)


def _unequal(facts: Facts, name: str, expected: float | None) -> Iterator[str]:
    entry = facts.metrics.get(name)
    if entry is None:
        return
    given = entry["value"]
    if given is None or expected is None:
        if given is not expected:
            yield differ(f"metrics.{name}", given, expected, "power")
    elif not near(given, expected):
        yield differ(f"metrics.{name}", given, expected, "power")
