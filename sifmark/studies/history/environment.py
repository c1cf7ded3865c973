"""The environment of a run: image, driver, framework, host and their settings, and how it changes between runs."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sifmark.results.catalogue import column_of, history_paths
from sifmark.results.comparison.observation import ENVIRONMENT, Observation

LIBRARIES, VARIABLES = "provenance.software.libraries", "environment.variables"
# A change of one of these is a place at which speed may have changed.
STATED = tuple(path for path in history_paths("stated") if path not in (LIBRARIES, VARIABLES))
# What is measured, and so differs from run to run: it explains a change, and marks no place.
MEASURED = history_paths("measured")
PATHS = (*STATED, LIBRARIES, *MEASURED)
HOST = column_of("host.hostname.value")
LEAST_OF_MEASURED = 0.03  # relative difference of medians that is worth mentioning
MOST_STRAYS = 0.2  # of the runs on a side may have the other side's value: clocks of hosts differ

Environment = Mapping[str, Any]  # by the fields' names in tables; what is unknown is left out


@dataclass(frozen=True)
class EnvironmentChange:
    """A fact of the environment that differs between the runs before a change and those after it."""

    name: str
    before: Any
    after: Any


def environment_of(observation: Observation) -> Environment:
    """Return the environment of a run: the facts that may explain a change of its performance."""
    fields = observation.fields
    stated = {column_of(path): fields.get(path) for path in STATED}
    stated |= {f"{LIBRARIES}.{name}": version for name, version in json.loads(fields.get(LIBRARIES) or "{}").items()}
    stated |= {name: fields[name] for name in fields if name.startswith(ENVIRONMENT)}
    return {name: value for name, value in stated.items() if value is not None}


def covariates_of(observation: Observation) -> Environment:
    """Return the measured state of device and host: clocks, temperature and throttling."""
    values = {column_of(path): observation.fields.get(path) for path in MEASURED}
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
    for name in map(column_of, MEASURED):
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
