"""How far apart are correct computations, and are mistakes further off? Measures and writes the references.

See README.md beside this file.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sifmark.core.files import write_json
from sifmark.core.paths import CHECKOUT as ROOT

sys.path.append(str(ROOT))  # what goes into images is not an installed package
from entrypoints.results.numerics import Deviation, deviation

REFERENCES = ROOT / "entrypoints" / "references"
PROBING = ROOT / "tests" / "inside" / "support" / "probing.py"
OLD, NEW = (ROOT / ".venvs" / name / "bin" / "python" for name in ("torch_old", "torch_new"))
PRECISIONS = ("fp32", "bf16")
ON_DEVICES = {"cuda": ("fp32", "tf32", "bf16", "fp16"), "xpu": ("fp32", "bf16", "fp16"), "hpu": ("fp32", "bf16")}
MARGIN = 4  # times the largest deviation of correct code: other hardware rounds differently
# What deviates for the same reasons.
ALIKE = {"third_update": "second_update", "fourth_update": "second_update"}
ALIKE |= {"own_rule": "first_update", "accumulated": "first_update"}
LEAST = 1e-6  # some rounding errors of float32: no tolerance is smaller

# The start of a new workload. The hyper-parameters are large enough that two updates show each of them in float32, and
# small enough that rounding errors do not explode between the first and the second: chosen by hand.
DRAFT = {"schema_version": "1.0", "batch_size": 4, "optimizer": {"learning_rate": 0.001, "weight_decay": 0.3}}

Quantities = dict[str, list[float]]
Reference = dict[str, Any]


def main() -> None:
    """Measure and print, and with --write save the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", nargs="?", default="resnet50")
    parser.add_argument("--write", action="store_true", help="write entrypoints/references/WORKLOAD.json")
    parser.add_argument("--afresh", action="store_true", help="forget the tolerances that other machines needed")
    parser.add_argument("--extend", action="store_true", help="measure only what has no tolerance yet")
    parser.add_argument("--device", choices=ON_DEVICES, help="measure only what other tolerances this device needs")
    parser.add_argument(
        "--merge", type=Path, metavar="FILE", help="take what a device needs from proof.json of `device.prove`"
    )
    parser.add_argument(
        "--python", default=NEW, metavar="FILE", help="with --device: an interpreter with PyTorch for it"
    )
    options = parser.parse_args()
    path = REFERENCES / f"{options.workload}.json"
    document = json.loads(path.read_text()) if path.exists() else DRAFT | {"workload": options.workload}
    if options.merge:
        _finish(path, document | {"devices": _merged(document, json.loads(options.merge.read_text()))}, options.write)
        return
    if options.device:
        measured = document.get("devices", {})
        measured[options.device] = _of_device(document, options.device, Path(options.python))
        _finish(path, document | {"devices": measured}, options.write)
        return
    document["identity"] = _identity(options.workload)
    earlier = {} if options.afresh else document.get("tolerances", {})
    ((source, reference),) = _variants(OLD, document, "reference", "fp32")
    document |= {"values": reference, "source": source}
    if options.extend:
        _extend(document)
    else:
        document |= {"tolerances": {}, "not_provable": {}}
        _measure(document, earlier)
    _finish(path, document, options.write)


def _finish(path: Path, document: Reference, write: bool) -> None:
    if write:
        write_json(path, document)


def _extend(document: Reference) -> None:
    """Measure the tolerances that the document lacks, by a few variants of correct code.

    Where another machine needed more for a quantity of the same kind, as much more is allowed. A precision that proves
    nothing gets none: what it lacks is not compared.
    """
    for precision in [each for each in PRECISIONS if each not in document["not_provable"]]:
        earlier = document["tolerances"][precision]
        here = _tolerances(document, precision, "few")
        for name in here.keys() - earlier.keys():
            stage, _, group = name.partition(".")
            alike = f"{ALIKE[stage]}.{group}"
            here[name] = float(f"{here[name] * max(1.0, earlier[alike] / here[alike]):.2g}")
        document["tolerances"][precision] = here | earlier


def _measure(document: Reference, earlier: dict[str, dict[str, float]]) -> None:
    """Measure all tolerances, and what mistakes they find."""
    for precision in PRECISIONS:
        tolerances = _largest(_tolerances(document, precision, "honest"), earlier.get(precision, {}))
        document["tolerances"][precision] = tolerances
        if missed := _missed(document, precision, tolerances, NEW):
            reason = document["not_provable"][precision] = _as_much_as(precision, missed)
            print(f"{precision}: {reason}")


def _of_device(document: Reference, device: str, python: Path) -> Reference:
    """Return what a reference has for another kind of device: what it needs beyond the tolerances of CPUs."""
    earlier = document.get("devices", {}).get(device, {"tolerances": {}})["tolerances"]
    tolerances: dict[str, dict[str, float]] = {}
    not_provable = {}
    for precision in ON_DEVICES[device]:
        on_cpus = document["tolerances"].get(precision, {})
        here = _largest(_tolerances(document, precision, "device", (python,), device), earlier.get(precision, {}))
        wider = {
            name: value for name, value in here.items() if value > on_cpus.get(name, 0.0 if not on_cpus else value)
        }
        if wider:
            tolerances[precision] = wider
        missed = _missed(document, precision, on_cpus | wider, python, device)
        if missed and precision not in document["not_provable"]:
            not_provable[precision] = _as_much_as(precision, missed)
    return {"measured_on": _device_of(python, device), "tolerances": tolerances, "not_provable": not_provable}


def _merged(document: Reference, proof: Reference) -> Reference:
    """Return what a reference has for other kinds of devices, with the deviations that a proof has measured on one.

    They widen tolerances and say nothing of mistakes: a precision that had no tolerances proves nothing yet.
    """
    devices, device = dict(document.get("devices", {})), proof["device"]
    if device["kind"] == "cpu":
        sys.exit("a proof of a CPU: run this without --merge, it measures CPUs itself")
    own = devices.get(device["kind"], {"tolerances": {}, "not_provable": {}})
    tolerances, not_provable = dict(own["tolerances"]), dict(own["not_provable"])
    for precision, deviations in proof["deviations"].get(document["workload"], {}).items():
        allowed = document["tolerances"].get(precision, {}) | tolerances.get(precision, {})
        here = {name: _tolerance(value) for name, value in deviations.items() if value is not None}
        wider = {name: value for name, value in here.items() if value > allowed.get(name, 0.0)}
        for name, value in wider.items():
            print(f"{precision}  {name:<34} {allowed.get(name, 0.0):.2g} -> {value:.2g}")
        if wider:
            tolerances[precision] = tolerances.get(precision, {}) | wider
        if wider and not allowed:
            not_provable[precision] = f"mistakes were not measured in {precision} on this kind of device"
    measured = f"{device['name']}, {proof['software']['framework']} {proof['software']['framework_version']}"
    names = "; ".join(dict.fromkeys([*filter(None, [own.get("measured_on")]), measured]))
    devices[device["kind"]] = {"measured_on": names, "tolerances": tolerances, "not_provable": not_provable}
    return devices


def _device_of(python: Path, device: str) -> str:
    """Return the name of the device, and the version of PyTorch."""
    code = f"import torch; print(torch.{device}.get_device_name() + ', PyTorch', torch.__version__)"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _as_much_as(precision: str, missed: list[str]) -> str:
    return f"correct code deviates in {precision} as much as with these mistakes: {', '.join(missed)}"


def _identity(workload: str) -> str:
    described = subprocess.run(
        [NEW, ROOT / "entrypoints" / "main.py", workload, "--describe", "--json"], check=True, capture_output=True
    )
    return str(json.loads(described.stdout)["workload"]["identity"])


def _variants(
    python: Path, document: Reference, kind: str, precision: str, *device: str
) -> Iterator[tuple[str, Quantities]]:
    command: list[str | Path] = [python, PROBING, kind, precision, *device]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        with process.stdin as stdin:
            json.dump(document, stdin)
        for line in process.stdout:
            record = json.loads(line)
            yield f"{record['variant']}, torch {record['torch']}", record["quantities"]
    if process.returncode:
        sys.exit(f"{PROBING.name} failed in {python}; its words are above")


def _tolerances(
    document: Reference, precision: str, variants: str, pythons: tuple[Path, ...] = (NEW, OLD), *device: str
) -> dict[str, float]:
    """Return a tolerance for each quantity: MARGIN times the largest deviation of correct code, to two digits."""
    reference = document["values"]
    largest = dict.fromkeys(reference, 0.0)
    for python in pythons:
        for variant, quantities in _variants(python, document, variants, precision, *device):
            deviations = {name: _share(values, reference[name]) for name, values in quantities.items()}
            largest |= {name: max(largest[name], value) for name, value in deviations.items()}
            worst = max(deviations, key=lambda name: deviations[name])
            print(f"{precision}  honest  {variant:<40} {worst:<34} {deviations[worst]:.2g}", flush=True)
    return {name: _tolerance(value) for name, value in largest.items()}


def _tolerance(largest: float) -> float:
    """Return the tolerance of a quantity of which correct code deviates so much, to two digits."""
    return float(f"{max(LEAST, MARGIN * largest):.2g}")


def _largest(here: dict[str, float], earlier: dict[str, float]) -> dict[str, float]:
    """Return the tolerances for correct code on every measured machine: processors round differently."""
    return {name: max(tolerance, earlier.get(name, 0.0)) for name, tolerance in here.items()}


def _missed(document: Reference, precision: str, tolerances: dict[str, float], python: Path, *device: str) -> list[str]:
    """Return the mutants that are within every tolerance."""
    reference, missed = document["values"], []
    for variant, quantities in _variants(python, document, "mutants", precision, *device):
        shares = {name: _share(quantities.get(name, []), reference[name], tolerances[name]) for name in tolerances}
        telling = max(shares, key=lambda name: shares[name])
        print(f"{precision}  mutant  {variant:<40} {telling:<34} {shares[telling]:.3g} of the tolerance", flush=True)
        if shares[telling] <= 1:
            missed.append(variant.partition(",")[0])
    return missed


def _share(values: list[float], stored: list[float], tolerance: float = 1.0) -> float:
    """Return the deviation as a fraction of the tolerance; infinite if a number is not finite."""
    return Deviation("", deviation(values, stored), tolerance).share


if __name__ == "__main__":
    main()
