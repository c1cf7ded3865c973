"""Rules about energy: it is that of the meter's devices, and everything else follows from it."""

from __future__ import annotations

import math
from typing import Iterator, NamedTuple, Sequence

from entrypoints.metering import names
from entrypoints.metering.energy import FEWEST_PERIODS, LONGEST_GAP
from entrypoints.metering.meters import replay
from entrypoints.results import peaks
from entrypoints.rules.facts import FIRST_VERSION, Facts, device_named, is_number, is_whole, near
from entrypoints.rules.rule import ROUNDING, differ, rule, unequal_metrics

OF_ENERGY = (
    *("energy", "energy_per_unit", "energy_per_device", "units_per_watt_hour", "tokens_per_watt_hour"),
    *("throughput_per_watt", "power_mean", "energy_per_epoch", "decode_tokens_per_watt_hour"),
)
OF_EVERY_METER = ("energy", "energy_per_unit", "energy_per_device", "units_per_watt_hour", "power_mean")
COUNTER, INTEGRAL = "counter", "integral"
ANY_METHOD = (COUNTER, INTEGRAL)


class KindOfMeter(NamedTuple):
    """What readings a meter has, as its module in `metering/meters` says."""

    sources: tuple[str, ...]
    devices: tuple[str, ...]  # kinds of device that it measures; none: any, if it is asked for
    scopes: tuple[str, ...]
    methods: tuple[str, ...] = ANY_METHOD
    imports_unseen: bool = False


METERS = {
    "amd": KindOfMeter(("amdsmi", "rocm_smi"), ("cuda",), ("package",)),
    "gcipuinfo": KindOfMeter(("gcipuinfo",), ("ipu",), ("die", "board"), (INTEGRAL,)),
    "grace_hopper": KindOfMeter(("acpi_power_meter",), (), ("board",), (INTEGRAL,)),
    "hlml": KindOfMeter(("hlml",), ("hpu",), ("board",)),
    "hwmon": KindOfMeter(("acpi_power_meter",), ("cpu",), ("package",), (INTEGRAL,)),
    "intel": KindOfMeter(("level_zero", "drm_hwmon"), ("xpu",), ("package", "board"), (COUNTER,)),
    "nvml": KindOfMeter(("nvml",), ("cuda",), ("package",), imports_unseen=True),
    "rapl": KindOfMeter(("rapl",), ("cpu",), ("package", "die"), (COUNTER,)),
    "replay": KindOfMeter((replay.NAME,), (), replay.SCOPES),
}
JOULES_PER_WATT_HOUR = 3600.0
ACCELERATORS = ("cuda", "xpu", "hpu", "ipu")  # which take little but for the run: a host has other work
LEAST_OF_IDLE, MOST_OF_RATED = 0.75, 1.3
MOST_WATTS = 1e5  # of a device: no node takes 100 kW
LATE_READINGS = 5  # the two around a window, the last of a run, and two that were late
SECONDS_SLACK = 0.1  # s, of clocks that are read one after the other
# A first reading may take long, and only later ones are of the rest.
REST_SHARE, REST_SLACK = 0.75, 1.0  # of the rest; s
# A counter and power differ by a few per cent. Power that every reading meets in a burst is still not five times the
# mean; beyond that they are of different devices.
MOST_DIFFERENCE = 4.0
OF_ROUNDED_POWER = 1e-4  # of an energy
WINDOWS = 1e-6  # of an energy: two windows are interpolated at the same edge


def meters_of(asked: str, device: str) -> Sequence[KindOfMeter]:
    """Return the meters that `configuration.meter` may stand for; none of them for `none`."""
    name = asked.partition(":")[0]
    if name == names.AUTO:
        return [meter for meter in METERS.values() if device in meter.devices]
    # The name of any other meter is that of its source.
    meter = METERS.get(name, KindOfMeter((name,), (), replay.SCOPES))
    return [] if name == names.NONE or (meter.devices and device not in meter.devices) else [meter]


@rule(
    "without a meter there is no energy; with one it is one that `configuration.meter` selects for this kind of "
    "device, of its scope, by its method, and the metrics of energy are there",
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
    source, method = power["source"], power["method"]
    meters = [meter for meter in meters_of(asked, facts.configuration["device"]) if source in meter.sources]
    if not meters:
        yield differ("power.source", source, asked, f"configuration.meter on {facts.configuration['device']}")
    elif not any(power["scope"] in meter.scopes for meter in meters):
        yield differ("power.scope", power["scope"], ", ".join(meters[0].scopes), f"the meter {source}")
    elif method is not None and not any(method in meter.methods for meter in meters):
        yield differ("power.method", method, ", ".join(meters[0].methods), f"the meter {source}")
    if source == replay.NAME and not facts.document["provenance"]["simulated"]:
        yield "provenance.simulated: a replayed trace was not measured"
    for name in OF_EVERY_METER:
        if name not in facts.metrics:
            yield f"metrics.{name}: with a meter there is one, or the reason why not"


@rule(
    "`sampling_period_seconds` = `configuration.meter_period_seconds`; `method` and `samples` are there exactly if the "
    "devices have energy; then the window has 20 periods, a sample at least every 5, and at most one a period; a "
    "difference of counter and integral is of a counter, and from -1 to 4; no more readings failed than were due",
    "Energy comes from readings, and readings from a clock.",
    "5 readings, 1e-6 of the window",
)
def energy_is_covered_by_readings(facts: Facts) -> Iterator[str]:
    """Compare the number of readings with the time that they cover."""
    power, window = facts.document["power"], facts.window
    if "devices" not in power:
        return
    sampling, asked = power["sampling_period_seconds"], facts.configuration["meter_period_seconds"]
    if sampling != asked:
        yield differ("power.sampling_period_seconds", sampling, asked, "configuration.meter_period_seconds")
    measured = any(device["energy"]["value"] is not None for device in power["devices"])
    method, samples = power["method"], power["samples"]
    if (method is not None) != measured or (samples is not None) != measured:
        yield f"power.method: {method!r} from {samples!r} samples, and devices with{'' if measured else 'out'} energy"
    elif measured and window is not None and samples is not None:
        period = max(sampling, power["update_period_seconds"])
        if window * (1 + WINDOWS) < FEWEST_PERIODS * period:
            yield f"power.update_period_seconds: {window!r} s are not {FEWEST_PERIODS} periods of {period!r} s"
        least, most = window / (LONGEST_GAP * period), window / sampling + LATE_READINGS
        if not least <= samples <= most:
            yield f"power.samples: {samples!r} where the timed window has {least:.0f} to {most:.0f}"
    difference = power["counter_integral_difference"]["value"]
    if difference is not None and (method != COUNTER or not -1 < difference <= MOST_DIFFERENCE):
        yield f"power.counter_integral_difference: {difference!r} by the method {method}"
    elapsed = _elapsed(facts)
    if elapsed is not None and power["failed_readings"] > elapsed / sampling + LATE_READINGS:
        yield differ("power.failed_readings", power["failed_readings"], elapsed / sampling, "the length of the run")


@rule(
    "`idle` has a duration if `configuration.idle_seconds` is not 0, and power only with one; it and the time of "
    "averaging before it lie in the run; completed, without a failed reading, it lasts as long as was asked for; what "
    "is imported in it takes no longer than it, and of a single rank no longer than its import",
    "Idle power is measured while the run rests, or imports what a meter of GPUs alone does not see.",
    "0.1 s + 1 %; the rest may be a quarter + 1 s shorter, since a first reading may be late",
)
def idle_power_is_of_a_rest(facts: Facts) -> Iterator[str]:
    """Compare the rest with the run."""
    power, asked = facts.document["power"], facts.configuration["idle_seconds"]
    if "idle" not in power:
        return
    seconds, watts = power["idle"]["duration"]["value"], power["idle"]["power"]["value"]
    averaging = power["averaging_time"]["value"] or 0.0
    if averaging < 0:
        yield f"power.averaging_time: {averaging!r} is negative"
    if watts is not None and (seconds is None or not 0 < watts <= MOST_WATTS * len(power["devices"])):
        yield f"power.idle.power: {watts!r} W over {seconds!r} s"
    if seconds is None:
        return
    elapsed = _elapsed(facts)
    if not asked or seconds <= 0:
        yield differ("power.idle.duration", seconds, asked, "configuration.idle_seconds")
    elif elapsed is not None and seconds + averaging > 1.01 * elapsed + SECONDS_SLACK:
        yield differ("power.idle.duration", seconds + averaging, elapsed, "at most the run")
    if "importing" in power["idle"]:
        yield from _imports_of_a_rest(facts, power["idle"]["importing"]["value"], seconds)
    shortest = REST_SHARE * (asked - averaging) - REST_SLACK
    if facts.completed and not power["failed_readings"] and seconds < shortest:
        yield differ("power.idle.duration", seconds, asked, "configuration.idle_seconds")


def _imports_of_a_rest(facts: Facts, importing: float, rest: float) -> Iterator[str]:
    """Compare the seconds in which a framework was imported during the rest with those of rest and import."""
    whole = facts.document["phases"]["import"]["seconds"]
    longest = min(rest, whole) if whole is not None and facts.document["ranks"] is None else rest
    if not 0 <= importing <= 1.01 * longest + SECONDS_SLACK:
        yield differ("power.idle.importing", importing, longest, "at most the rest, and the import")
    source = facts.document["power"]["source"]
    if any(source in meter.sources and not meter.imports_unseen for meter in METERS.values()):
        yield f"power.idle.importing: {source} counts what an import uses, too"


def _elapsed(facts: Facts) -> float | None:
    """Return the length of the run by the clock of the readings; None in schema 1.0, which has none."""
    elapsed = facts.document["conditions_after"].get("elapsed_monotonic", {}).get("value")
    return elapsed if is_number(elapsed) else None


@rule(
    "`energy` = the sum of `power.devices`, each of which = its `power_mean` x the timed window, over 0 and at most "
    "100 kW; devices of a host have different names, and a node is only one",
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
    yield from unequal_metrics(facts, {"energy": expected}, "power")
    for number, device in enumerate(power["devices"]):
        used, mean = device["energy"]["value"], device["power_mean"]["value"]
        product = None if mean is None or window is None else mean * window
        if used is not None and used <= 0:
            yield f"power.devices.{number}.energy: {used!r} is not positive"
        if mean is not None and mean > MOST_WATTS:
            yield f"power.devices.{number}.power_mean: {mean!r} W are beyond any device"
        if (used is None) != (mean is None) or (used is not None and product is not None and not near(used, product)):
            yield differ(f"power.devices.{number}.power_mean", mean, used, "its energy over the timed window")
    different = len({(device["name"], device.get("host")) for device in power["devices"]})
    hosts = len({device.get("host") for device in power["devices"]})
    if different < len(power["devices"]) or (power["scope"] == "node" and different > hosts):
        yield f"power.devices: {len(power['devices'])}, of {different} names and the scope {power['scope']}"


@rule(
    "a whole number of the intervals of `power.trace` lies before the timed window, another one fills it, and power x "
    "length of those is `energy`; without energy there is no trace",
    "The course of power and its energy are the same readings.",
    "1e-4 of the energy, since power is rounded to 5 digits",
)
def trace_adds_up_to_the_energy(facts: Facts) -> Iterator[str]:
    """Add the intervals of the timed window up again."""
    power, joules = facts.document["power"], facts.metric("energy")
    trace = power.get("trace")
    if trace is None:
        return
    if joules is None or not facts.window:
        yield "power.trace: there is none without energy"
        return
    interval, window, watts = trace["interval_seconds"], trace["window_seconds"], trace["watts"]
    if not near(window, facts.window):
        yield differ("power.trace.window_seconds", window, facts.window, "the timed window")
    before, within = -trace["begin_seconds"] / interval, window / interval
    if is_whole(before) and is_whole(within) and round(before) + round(within) <= len(watts):
        inside = watts[round(before) : round(before) + round(within)]
        total = None if None in inside else math.fsum(inside) * interval
        if total is None or not near(total, joules, OF_ROUNDED_POWER):
            yield differ("power.trace.watts: their energy", total, joules, "metrics.energy")
    else:
        yield f"power.trace: {before!r} intervals lie before the window and {within!r} in it, of {len(watts)}"


@rule(
    "intervals of `power.trace` are no shorter than the periods of the meter, and all lie in the run; the rest before "
    "it ends before the timed window",
    "Between two readings nobody knows the power.",
    "0.1 s + 1 % of the run",
)
def trace_is_of_the_run(facts: Facts) -> Iterator[str]:
    """Compare the trace with the meter's period and the length of the run."""
    power, elapsed = facts.document["power"], _elapsed(facts)
    trace = power.get("trace")
    if trace is None:
        return
    interval, rest = trace["interval_seconds"], trace["rest_until_seconds"]
    shortest = max(power["sampling_period_seconds"], power["update_period_seconds"])
    if interval < shortest * (1 - WINDOWS):
        yield differ("power.trace.interval_seconds", interval, shortest, "the periods of the meter")
    seconds = len(trace["watts"]) * interval
    if elapsed is not None and seconds > 1.01 * elapsed + SECONDS_SLACK:
        yield differ("power.trace: its length", seconds, elapsed, "at most the run")
    if rest is not None and rest > 0:
        yield differ("power.trace.rest_until_seconds", rest, 0.0, "at most the begin of the timed window")


@rule(
    "accelerators take at least 0.75 of their idle power, and each at most 1.3 of its rated power, where the table of "
    "peaks has one of no smaller a part than the meter's",
    "A device that works takes more than one that rests, and no more than its supply is built for.",
    "a quarter below idle power, which falls while a device cools; 0.3 above rated power, since sites may raise limits",
)
def power_is_possible(facts: Facts) -> Iterator[str]:
    """Compare the mean power with that of the rest, and with the rated one."""
    power, device = facts.document["power"], facts.document["accelerator"]
    if facts.document["provenance"]["simulated"] or device["kind"] not in ACCELERATORS or "source" not in power:
        return
    mean, idle = facts.metric("power_mean"), ((power.get("idle") or {}).get("power") or {}).get("value")
    if mean is not None and idle is not None and is_number(idle) and mean < LEAST_OF_IDLE * idle:
        yield differ("metrics.power_mean", mean, LEAST_OF_IDLE * idle, "at least power.idle.power")
    rated = peaks.rated_power(device_named(device))
    if rated.watts is None or (power["scope"], rated.scope) == ("board", "package"):
        return
    for number, metered in enumerate(power.get("devices", ())):
        watts = metered["power_mean"]["value"]
        if watts is not None and watts > MOST_OF_RATED * rated.watts:
            yield differ(f"power.devices.{number}.power_mean", watts, rated.watts, "at most the rated power")


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
        name for name in OF_ENERGY if name not in ("energy", "energy_per_epoch", "decode_tokens_per_watt_hour")
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
        yield from unequal_metrics(facts, {name: value}, "power")


@rule(
    "`energy_per_epoch` = the mean of the epochs' energy but the first's",
    "The first epoch contains compilation and warm-up.",
    ROUNDING,
)
def energy_of_epochs_is_their_mean(facts: Facts) -> Iterator[str]:
    """Average the epochs again."""
    joules = [epoch["energy"]["value"] for epoch in facts.document["epochs"][1:]]
    expected = math.fsum(joules) / len(joules) if joules and None not in joules else None
    yield from unequal_metrics(facts, {"energy_per_epoch": expected}, "power")


@rule(
    "an epoch's energy is over 0 and of at most 100 kW a device; without evaluations, the epochs in the timed window "
    "have at most its energy together, and all of it if they are all of the window",
    "They are the same readings.",
    "1e-6 of the energy; not in schema 1.0, whose epochs were not cut at the edges of phases",
)
def energy_of_epochs_is_that_of_the_window(facts: Facts) -> Iterator[str]:
    """Add the epochs of the timed window up again."""
    power, epochs, whole = facts.document["power"], facts.document["epochs"], facts.metric("energy")
    devices = len(power.get("devices", ()))
    for number, epoch in enumerate(epochs):
        joules = epoch["energy"]["value"]
        if joules is not None and not 0 < joules <= MOST_WATTS * devices * epoch["seconds"]:
            yield f"epochs.{number}.energy: {joules!r} J in {epoch['seconds']!r} s by {devices} devices"
    size = int(facts.configuration["steps_per_epoch"] or 0)
    if not size or whole is None or facts.document["schema_version"] == FIRST_VERSION:
        return
    first = -(-facts.untimed // size)
    inside = [epoch["energy"]["value"] for epoch in epochs[first:]]
    together = math.fsum(joules or 0.0 for joules in inside)
    all_of_it = None not in inside and facts.untimed == first * size and facts.count == len(epochs) * size
    if together > whole * (1 + WINDOWS) or (all_of_it and not near(together, whole, WINDOWS)):
        yield differ("epochs: their energy", together, whole, "metrics.energy")
