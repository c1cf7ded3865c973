"""The table of what was measured on devices, in the page on hardware, from the results in `measured/`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sifmark.core import paths
from sifmark.core.console import markdown_text

PAGE = paths.CHECKOUT / "docs" / "measure" / "hardware.md"
MEASURED = paths.CHECKOUT / "measured"
BEGIN, END = "<!-- made of measured/ by ci/generate -->", "<!-- end of what is made of measured/ -->"
DEFAULTS = "defaults-"  # experiments of what an image does without options
SHORT = 8  # digits of a commit
_HEAD = """| device | what | how | result | over plain PyTorch | of its bound | of the target | commit |
|---|---|---|---|---|---|---|---|"""
_NONE = (
    "What an image does without options, compiled and with a batch for the memory of the device, was not measured yet. "
    "Rows that say `eager` are not that."
)
# Experiments whose figures are told one by one, as the beginnings of their names, and what they are.
_PARTS = {"normal_over_whole_": "products of random over those of whole numbers", "step_": "step", "passed": "passed"}
_PEAKS = ("peak_flops", "memory_bandwidth", "peak_bandwidth", "throughput")
_UNITS = {"FLOP/s": (1e12, "TFLOP/s")}

Json = Mapping[str, Any]


def measured_page() -> str:
    """Return the page on hardware with its table of results."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n{measured_table(MEASURED)}{END}{rest.partition(END)[2]}"


def measured_table(folder: Path) -> str:
    """Return the table of the complete results in a folder, what is lacking, and remarks, in Markdown."""
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*/*.json"))]
    records = [record for record in records if record["state"] == "completed"]
    lines = [_HEAD, *(line for record in records for line in _rows(record)), ""]
    if not any(record["experiment"].startswith(DEFAULTS) for record in records):
        lines += [_NONE, ""]
    for remark in sorted({record["remarks"] for record in records if "remarks" in record}):
        lines += [markdown_text(remark), ""]
    return "\n".join(lines)


def _rows(record: Json) -> Iterator[str]:
    """Yield the rows of an experiment: its throughput or peak, otherwise the figures that are told one by one."""
    figures = record["figures"]
    peak = next((name for name in _PEAKS if name in figures), None)
    what = record["experiment"].removeprefix(DEFAULTS).removeprefix("eager-").replace("-", " ")
    if peak:
        power = figures.get("power_mean", {}).get("value")
        result = _shown(figures[peak]) + (f", {power:.0f} W" if power is not None else "")
        yield _row(record, what, result)
    for name, figure in figures.items() if peak is None else ():
        beginning = next((part for part in _PARTS if name.startswith(part)), None)
        if beginning and name != "step_none":
            rest = name.removeprefix(beginning).replace("_", " ")
            yield _row(record, f"{what}: {_PARTS[beginning]} {rest}".rstrip(), _shown(figure))


def _row(record: Json, what: str, result: str) -> str:
    figures, commit = record["figures"], record["commit"]
    cells = [record["device"], what, _how(record["settings"]), result]
    cells += [_shown(figures[name]) if name in figures else "" for name in ("over_plain", "fraction_of_bound")]
    cells += [_shown(figures["over_target"]) if "over_target" in figures else ""]
    return f"| {' | '.join(markdown_text(cell) for cell in cells)} | {_commit(commit)} |"


def _how(settings: Json) -> str:
    """Return precision, whether a model was compiled, and the batch, as far as an experiment has them."""
    parts = [settings.get("precision")]
    if "compile" in settings:
        parts.append(f"compiled ({settings['compile']})" if settings["compile"] else "eager")
    parts += [f"batch {settings['batch_size']}" if "batch_size" in settings else None]
    return ", ".join(part for part in parts if part)


def _shown(figure: Json) -> str:
    """Return a figure with its spread, or nothing if it has no value."""
    if figure["value"] is None:
        return ""
    scale, unit = _UNITS.get(figure["unit"], (1.0, figure["unit"]))
    spread = [figure[name] / scale for name in ("least", "most") if name in figure]
    text = _number(figure["value"] / scale) + ("" if unit == "1" else f" {unit}")
    return f"{text} ({_number(spread[0])} to {_number(spread[1])})" if len(spread) == 2 else text


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _commit(commit: str | None) -> str:
    if commit is None:
        return "unknown"
    identifier, _, changed = commit.partition("-")
    return f"`{identifier[:SHORT]}`" + (", changed" if changed else "")
