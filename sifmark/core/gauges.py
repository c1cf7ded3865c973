"""Gauges in the text format of OpenMetrics 1.0, which is also that of Prometheus.

Samples have no time: node_exporter's textfile collector refuses files that have one.
"""

import math
from collections import defaultdict
from collections.abc import Mapping

PREFIX = "sifmark"


class Gauges:
    """Samples by the name of their family, which is written with the prefix."""

    def __init__(self) -> None:
        self._samples: dict[str, list[str]] = defaultdict(list)
        self._helps: dict[str, str] = {}

    def add(self, name: str, about: str, labels: Mapping[str, str], value: float) -> None:
        """Add a sample of a family."""
        self._helps[name] = about
        self._samples[name].append(f"{PREFIX}_{name}{_braces(labels)} {_number(value)}")

    def text(self) -> str:
        """Return all families in the order of their names."""
        parts = (
            "\n".join([*_heading(name, self._helps[name]), *self._samples[name]]) for name in sorted(self._samples)
        )
        return "\n".join([*parts, "# EOF\n"])


def as_label(name: str) -> str:
    """Return the dotted name of a field as that of a label."""
    return name.replace(".", "_")


def _heading(name: str, about: str) -> list[str]:
    text = about.replace("\\", "\\\\").replace("\n", "\\n").replace('"', "'")  # the two formats differ in quotes
    return [f"# HELP {PREFIX}_{name} {text}", f"# TYPE {PREFIX}_{name} gauge"]


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{as_label(name)}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"
