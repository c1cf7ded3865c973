"""The environment of a run: image, driver, framework, host and their settings, and how it changes between runs."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sifmark.results.comparison.observation import ENVIRONMENT, Observation

# By name where a result has it. A change of one of these is a place at which speed may have changed.
STATED = {
    "image": "provenance.image.build_key",
    "image version": "provenance.image.version",
    "base": "provenance.image.base.digest",
    "packages": "provenance.image.lock",
    "framework": "provenance.software.framework_version",
    "execution": "accelerator.execution",
    "python": "provenance.software.python",
    "driver": "device_conditions.driver.value",
    "power cap": "device_conditions.power_cap.value",
    "highest clock": "device_conditions.clock_max.value",
    "memory clock": "device_conditions.memory_clock.value",
    "ecc": "device_conditions.ecc.value",
    "partitioning": "device_conditions.partitioning.value",
    "persistence": "device_conditions.persistence.value",
    "host": "host.hostname.value",
    "processor": "host.cpu_model.value",
    "firmware (microcode)": "host.microcode.value",
    "kernel": "host.kernel.value",
    "operating system": "host.os.value",
    "hypervisor": "host.hypervisor.value",
    "cpu governor": "conditions.cpu_governor.value",
    "highest cpu clock": "conditions.cpu_clock_max.value",
    "cpu power cap": "conditions.cpu_power_cap.value",
    "cpu boost": "conditions.cpu_boost.value",
    "smt": "conditions.smt.value",
    "mitigations": "conditions.mitigations.value",
    "huge pages": "conditions.transparent_huge_pages.value",
    "memory allocator": "conditions.memory_allocator.value",
    "numa policy": "conditions.numa_policy.value",
    "network": "transport.network",
}
LIBRARIES = "provenance.software.libraries"
# What is measured, and so differs from run to run: it explains a change, and marks no place.
MEASURED = {
    "clock": "device_conditions_after.clock.value",
    "temperature": "device_conditions_after.temperature.value",
    "throttling": "device_conditions_after.throttling.value",
    "cpu clock": "conditions_after.cpu_clock.value",
}
PATHS = (*STATED.values(), LIBRARIES, *MEASURED.values())
HOST = "host"
LEAST_OF_MEASURED = 0.03  # relative difference of medians that is worth mentioning
MOST_STRAYS = 0.2  # of the runs on a side may have the other side's value: clocks of hosts differ

Environment = Mapping[str, Any]  # by name; what is unknown is left out


@dataclass(frozen=True)
class EnvironmentChange:
    """A fact of the environment that differs between the runs before a change and those after it."""

    name: str
    before: Any
    after: Any


def environment_of(observation: Observation) -> Environment:
    """Return the environment of a run: the facts that may explain a change of its performance."""
    fields = observation.fields
    stated = {name: fields.get(path) for name, path in STATED.items()}
    stated |= {f"library {name}": version for name, version in json.loads(fields.get(LIBRARIES) or "{}").items()}
    variables = [name for name in fields if name.startswith(ENVIRONMENT)]  # for thousands of results, a call is slow
    stated |= {f"variable {name.removeprefix(ENVIRONMENT)}": fields[name] for name in variables}
    return {name: value for name, value in stated.items() if value is not None}


def covariates_of(observation: Observation) -> Environment:
    """Return the measured state of device and host: clocks, temperature and throttling."""
    values = {name: observation.fields.get(path) for name, path in MEASURED.items()}
    return {name: value for name, value in values.items() if value is not None}


def is_variable(field: str) -> bool:
    """Return whether a field of an observation is of the user's environment."""
    return field.startswith(ENVIRONMENT)


def environment_changes(before: Sequence[Environment], after: Sequence[Environment]) -> Iterator[EnvironmentChange]:
    """Yield the facts that nearly all runs before have with one value, and nearly all after with another."""
    for name in dict.fromkeys(name for side in (before, after) for each in side for name in each):
        counts = [Counter(each[name] for each in side if name in each) for side in (before, after)]
        if not all(counts):
            continue
        (old, of_old), (new, of_new) = (count.most_common(1)[0] for count in counts)
        strays = (counts[0][new] / counts[0].total(), counts[1][old] / counts[1].total())
        mostly = of_old > counts[0].total() / 2 and of_new > counts[1].total() / 2
        if old != new and mostly and max(strays) <= MOST_STRAYS:
            yield EnvironmentChange(name, old, new)


def covariate_changes(before: Iterable[Environment], after: Iterable[Environment]) -> Iterator[EnvironmentChange]:
    """Yield what was measured and has other values after: numbers without a common range, or other texts."""
    sides = [list(before), list(after)]
    for name in MEASURED:
        old, new = ([each[name] for each in side if name in each] for side in sides)
        if not old or not new:
            continue
        if not all(isinstance(value, int | float) for value in (*old, *new)):
            yield from environment_changes([{name: value} for value in old], [{name: value} for value in new])
        elif max(old) < min(new) or max(new) < min(old):
            middle = median(old), median(new)
            if abs(middle[1] - middle[0]) >= LEAST_OF_MEASURED * abs(middle[0]):
                yield EnvironmentChange(name, *middle)


def has_changed(before: Environment, after: Environment, ignored: Iterable[str] = ()) -> bool:
    """Return whether two runs differ in a fact that both have, besides those that are ignored."""
    common = before.keys() & after.keys() - set(ignored)
    return any(before[name] != after[name] for name in common)
