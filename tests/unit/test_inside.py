"""What `inv doctor --image` makes of a result."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from sifmark import house, inside
from sifmark.engines import Seen
from sifmark.errors import SifmarkError
from sifmark.findings import Finding
from sifmark.inside import of_result
from sifmark.plan import WORKLOADS

EXAMPLES = house.SCHEMAS / "examples" / "result-1.0"


def found(name: str, **changes: Any) -> dict[str, Finding]:
    result = {**json.loads((EXAMPLES / f"{name}.json").read_text()), **changes}
    return {finding.subject: finding for finding in of_result(result)}


def test_a_run_on_the_cpu() -> None:
    seen = found("training")
    assert (seen["run"].state, seen["device"].state) == ("good", "good")
    assert seen["framework"].seen.startswith("pytorch 2.") and ", numpy " in seen["framework"].seen
    assert "numa nodes" in seen["topology"].seen
    assert "(node)" in seen["device"].seen and "GiB" in seen["device"].seen
    assert "driver" not in seen, "the host has none"


def test_a_gpu_that_is_held_back_and_shared() -> None:
    accelerator = {"kind": "cuda", "vendor": "NVIDIA", "name": "NVIDIA H200", "count": 1, "granularity": "package"}
    conditions = {
        "driver": {"value": "580.95.05"},
        "throttling": {"value": "software power cap"},
        "partitioning": {"value": "MIG"},
        "other_processes": {"value": 2},
        "power_cap": {"value": 700.0, "unit": "W"},
        "clock": {"value": None, "reason": "the device does not tell"},
    }
    power = {"source": "nvml", "scope": "package"}
    seen = found("training", accelerator=accelerator, device_conditions=conditions, power=power)
    assert seen["device"].seen == "1 x NVIDIA H200 (package)"
    assert (seen["throttling"].state, seen["throttling"].seen) == ("poor", "throttling software power cap")
    assert "other processes 2" in seen["other tenants"].seen and "power cap 700.0 W" in seen["power limit"].seen
    assert "clocks" not in seen and seen["meter"].seen == "nvml, each package"
    conditions["throttling"] = {"value": "none"}
    assert found("training", device_conditions=conditions)["throttling"].state == "good"


def test_no_device_is_bad_and_named() -> None:
    status = {"state": "no_device", "exit_code": 3, "message": "there is no /dev/nvidia0 here", "phase": "import"}
    device = {"kind": "cuda", "reason": "the run ended before a session was open"}
    seen = found("training", status=status, accelerator=device)
    assert (seen["run"].state, seen["device"].state) == ("bad", "bad")
    assert "/dev/nvidia0" in seen["run"].seen and seen["run"].remedy


@pytest.mark.parametrize("answered", ["[]", "null", "7", "", "{}", '{"schema_version": "9"}'])
def test_an_answer_that_is_no_result_is_told(monkeypatch: pytest.MonkeyPatch, answered: str) -> None:
    seen = Seen({WORKLOADS: inside.SMALLEST}, 1)
    tool = SimpleNamespace(look=lambda _: seen, sealed_off=list, command=lambda *_: ["x"])
    monkeypatch.setattr(inside, "locate", lambda _: (tool, "x.sif"))
    monkeypatch.setattr(inside, "device_options", lambda *_: [])
    monkeypatch.setattr(inside, "run", lambda *_, **__: SimpleNamespace(output=answered))
    with pytest.raises(SifmarkError, match="x.sif answered with what is no result"):
        list(inside.examine("x.sif"))
