"""The peak that a device showed in products of matrices: read from a result of matmul."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from entrypoints.contract.choices import MeasuredPeak
from entrypoints.contract.points import MATMUL
from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import Options
from entrypoints.system.image import binding_hint


def read(options: Options, precision: str, device: str, ranks: int) -> MeasuredPeak | None:
    """Return the peak of the result that an option names; None without it.

    Raises UsageError if it is no result of matmul in `precision` that completed and was verified.
    """
    if options.measured_peak is None:
        return None
    where = f"--measured-peak {options.measured_peak}"
    if device == "cpu" and ranks > 1:
        raise UsageError(f"{where}: it is of a whole CPU, which {ranks} ranks share", "leave it out")
    try:
        result = json.loads(Path(options.measured_peak).read_text("utf-8"))
        return _peak(result, precision, where)
    except (OSError, ValueError) as error:
        remedy = f"name a result of {MATMUL}{binding_hint(options.measured_peak)}"
        raise UsageError(f"{where}: it cannot be read: {error}", remedy, "file-unreadable") from None
    except (LookupError, TypeError):
        raise UsageError(
            f"{where}: it is no result of sifmark with schema 1.1 or later", f"give a result of {MATMUL}"
        ) from None


def _peak(result: Any, precision: str, where: str) -> MeasuredPeak:
    """Return the peak of a result. Raises UsageError, or LookupError or TypeError if it has another form."""
    workload, of_result = result["workload"]["name"], result["configuration"]["precision"]
    if workload != MATMUL:
        raise UsageError(f"{where}: it is a result of {workload}", f"give a result of {MATMUL}")
    if of_result != precision:
        raise UsageError(
            f"{where}: it is in {of_result}, and this run in {precision}", f"measure {MATMUL} in {precision}"
        )
    state, numerics = result["status"]["state"], result["numerics"]["state"]
    flops = result["metrics"]["peak_flops"]["value"]
    if (state, numerics) != ("completed", "passed") or not flops or result["provenance"]["simulated"]:
        raise UsageError(f"{where}: it is {state} with correctness {numerics}", "give one that completed and passed")
    return {"flops": float(flops), "device": str(result["accelerator"]["name"]), "result": str(result["id"])}
