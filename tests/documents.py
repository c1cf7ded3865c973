"""Documents made from the result schema itself, so that they follow it: whole ones, bare ones, and broken ones."""

import copy
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from typing import Any, cast
from zlib import crc32

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from entrypoints.contract.statuses import STATUSES
from entrypoints.results.metrics.by_workload import impossible_metrics
from entrypoints.rules.correctness import SKIPPED
from entrypoints.rules.metrics import units_of_metrics
from sifmark.core import paths
from sifmark.results.load import load_file

SCHEMA = json.loads((paths.SCHEMAS / "result-1.2.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
EXAMPLES = paths.SCHEMAS / "examples" / "result-1.2"
TRAINING = EXAMPLES / "training.json"

# One of these matches each pattern of the schema; a new pattern needs a new word.
WORDS = ["a", "sha256:" + "0f" * 32, "4d20c7dc-dbcb-4ee8-a7d9-1e864f5d61aa", "2024-02-29T12:00:00.123Z",
         "3.8.18", "3.8", "0f" * 20]  # fmt: skip
# What a careless pattern takes in Python, though not in ECMA: a digit of another script, a newline at the end.
QUIRKS = ["٢024-02-29T12:00:00.123Z", "2024-02-29T12:00:00.123Z\n", "sha256:" + "0f" * 32 + "\n", "a\n"]
VALUES: list[Any] = [None, True, False, 0, 1, -1, 1.0, 0.5, 10**18, "", "1.0", [], {}]
# Keywords that ask something of a value themselves; the others only point to schemas that do.
RULES = {"type", "const", "enum", "pattern", "minimum", "maximum", "exclusiveMinimum", "minLength", "minItems",
         "maxItems", "required", "additionalProperties", "oneOf"}  # fmt: skip

Path = tuple[Any, ...]


def problems_of(file: "os.PathLike[str]") -> list[str]:
    """The problems of a file, one line per field; empty if all its documents are valid."""
    return [problem for result in load_file(str(file)) for problem in result.problems]


def whole() -> dict[str, Any]:
    """A document with every property that may stand together, and no null where a value may be."""
    return dict(json.loads(_text(True)))


def bare() -> dict[str, Any]:
    """A document with what is required only, and null wherever that is allowed."""
    return dict(json.loads(_text(False)))


def unseen() -> dict[str, Any]:
    """The whole one, of an image whose file nobody saw."""
    nothing = {**dict.fromkeys(("identity", "digest", "signer", "seen_by")), "reason": "a reason"}
    document = whole()
    document["provenance"]["image"]["file"] = nothing
    return document


def unproved() -> dict[str, Any]:
    """The whole one, whose correctness check failed in a precision."""
    document = whole()
    proof = {**document["numerics"]["precisions"][0], "state": "failed", "reason": "a reason"}
    document["numerics"] |= {"state": "failed", "reason": "a reason", "precisions": [proof]}
    return document


def unconnected() -> dict[str, Any]:
    """The whole one, of ranks whose library does not say how they are connected."""
    document = whole()
    document["transport"] |= {"network": None, "reason": "a reason", "connections": []}
    return document


def result(**changes: Any) -> dict[str, Any]:
    """A whole, completed, comparable document with values at dotted paths; `configuration__precision="bf16"`."""
    document = whole()
    document["status"] |= {"state": "completed", "exit_code": 0, "phase": "steady"}
    document["configuration"]["smoke"] = False
    document["provenance"] |= {"stand_in": False, "simulated": False}
    document["environment"]["preloaded"] = []
    document["steadiness"] |= {"steady": True, "outliers": None}
    document |= {"ranks": None, "transport": None}
    for part in (document, document["configuration"]):
        del part["serving"]  # which only its task has
    proof: dict[str, Any] = {"precision": "fp32", "state": "passed", "worst": None, "mismatched": []}
    document["numerics"] = {"state": "passed", "precisions": [proof], "run_checks": []}
    for name, value in changes.items():
        put(document, tuple(name.split("__")), value)
    return document


def valid(**changes: Any) -> dict[str, Any]:
    """A document as `result` makes it, settled: a result that agrees with itself."""
    return settled(result(**changes))


def from_image(example: str = "training", **changes: Any) -> dict[str, Any]:
    """An example of a result as of an image, with values at dotted paths."""
    document: dict[str, Any] = json.loads((EXAMPLES / f"{example}.json").read_text())
    kept = {name: document["provenance"][name] for name in ("software", "command")}
    document["provenance"] = whole()["provenance"] | kept | {"simulated": False}
    document["provenance"]["image"]["framework"] = document["configuration"]["framework"]
    for name, value in changes.items():
        put(document, tuple(name.split("__")), value)
    document["provenance"]["stand_in"] |= document["provenance"]["image"]["stand_in"]
    return document


STEPS, WARMUP = 1200, 100  # more timed steps than a document lists
BOOT = "8f6d3c1e-0f3b-4c59-9d0e-6a1f7c2b5d84"
HOST_MIB, PROCESS_MIB = 100_000, 100.0
METER_PERIOD = 0.1  # s
TOKENS: dict[str, Any] = {"input": {"kind": "text"}}  # a problem of which only what the task rules out is impossible
NOT_MEASURED = "nobody measured it"


def settled(document: dict[str, Any]) -> dict[str, Any]:
    """A document made by `result` in which everything follows from what the rules of results let a test choose.

    Throughput, energy per unit, latencies, the state of the check and steadiness are kept; every other number becomes
    the one that they imply, as if all steps had taken equally long.
    """
    document = copy.deepcopy(document)
    _settle_configuration(document)
    rate = document["metrics"]["throughput"]["value"]
    measured = document["status"]["state"] in ("completed", "numerics_mismatch") and rate is not None
    step = document["configuration"]["batch_size"] / rate if measured else 0.0
    _settle_steps(document, step)
    _settle_times(document, step)
    _settle_metrics(document, step)
    _settle_texts(document)
    document["provenance"]["command"] = _command_of(document)
    return document


def _settle_texts(document: dict[str, Any]) -> None:
    """Messages and reasons as the program writes them."""
    status, batch_size = document["status"], document["configuration"]["batch_size"]
    of_state = {name: STATUSES[name].meaning for name in ("completed", "time_limit")}
    of_state |= {"interrupted": "stopped by SIGTERM", "numerics_mismatch": document["numerics"].get("reason")}
    of_state["out_of_memory"] = f"batch {batch_size}, limits of memory: none"
    status["message"] = of_state.get(status["state"]) or status["message"]


def _command_of(document: dict[str, Any]) -> list[str]:
    """The command line that asks for what a document has."""
    given, workload = document["configuration"], document["workload"]
    values = {
        **{name: given[name] for name in ("device", "precision", "threads", "seed", "steps", "epochs", "concurrency")},
        **{name: given[name] for name in ("replicas", "stages", "strategy", "meter", "batch_size", "micro_batch_size")},
        **{name: given[name] for name in ("warmup_steps", "samples_per_epoch", "device_iterations", "data_workers")},
        **{name: given[name] for name in ("idle_seconds", "evaluation_path")},
        "duration": given["duration_seconds"],
        "time_limit": given["time_limit_seconds"],
        "memory_limit": given["memory_limit_mib"],
        "meter_period": given["meter_period_seconds"],
        "data": given["data_path"],
        "task": workload["task"],
        "repeat": given["repeat"]["of"],
        "site": document["site"],
    }
    values["evaluation_data"] = values.pop("evaluation_path")
    words = [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value is not None]
    flags = {f"--compile={given['compile']}": given["compile"], "--smoke": given["smoke"]}
    flags["--skip-numerics"] = not (given["smoke"] or given["probe_numerics"])
    return [workload["name"], *words, *(flag for flag, wanted in flags.items() if wanted)]


def _settle_configuration(document: dict[str, Any]) -> None:
    given, task = document["configuration"], document["workload"]["task"]
    training = task == "training"
    given |= {"steps": STEPS, "duration_seconds": None, "epochs": None, "warmup_steps": WARMUP, "goal": None}
    given |= {"micro_batch_size": given["batch_size"], "gradient_accumulation": 1, "device_iterations": 1}
    given |= {"cpu_bind": "auto", "offload": False, "instances": 1, "memory_proportion": None, "io_tiles": None}
    given.pop("precision_kind", None)  # it follows from what tests change: the precision, the device and the task
    given |= {"virtual_stages": 1, "tensor": 1, "shards": None}
    given |= {"stages": 1, "strategy": None, "replicas": 1, "meter": "auto", "repeat": {"index": 1, "of": 1}}
    given |= {"data": document["data"]["source"], "evaluation_path": None, "smoke": given["smoke"]}
    synthetic = given["data"] == "synthetic"
    per_epoch = None if synthetic else 100 * given["batch_size"]
    given |= {"data_path": None if synthetic else "/data", "samples_per_epoch": per_epoch}
    given |= {"steps_per_epoch": None if synthetic else 100}
    if training:
        given["concurrency"] = None
    given["probe_numerics"] = not given["smoke"]
    given |= {"seed": 0, "time_limit_seconds": None, "memory_limit_mib": None, "meter_period_seconds": METER_PERIOD}
    given |= {"idle_seconds": 0.0 if given["smoke"] else 5.0, "largest_size": None}
    given["measured_peak"] = None
    given["data_workers"] = None if synthetic or given["concurrency"] else 1
    samples = given["batch_size"] if synthetic else per_epoch
    document["data"] |= {"samples": samples, "classes": None if synthetic else 1, "part": None}
    document["data"]["skipped"] = {"count": 0, "examples": []}
    host = document["host"]
    document["conditions_after"]["openmp_wait"] = {"value": None, "reason": NOT_MEASURED}
    document["session"] = {"boot": {"value": BOOT}, "job": {"value": "4711"}}
    host["memory"]["value"] = max(host["memory"]["value"] or 0, HOST_MIB)
    document["conditions"]["cpu_affinity"] = {"value": "0"}
    document |= dict.fromkeys(("target", "search", "ranks", "transport", "points"))
    device = document["accelerator"]
    device |= {"kind": given["device"], "replicas": 1}
    for name in ("peak", "memory_bandwidth", "rated_power"):
        device[name] = {"value": None, "unit": device[name]["unit"], "reason": NOT_MEASURED}
        device.pop(f"{name}_source", None)
    device.pop("rated_power_scope", None)
    device.pop("compilation", None)  # of a framework that compiles nothing
    provenance = document["provenance"]
    provenance["software"]["framework"] = provenance["image"]["framework"] = given["framework"]
    provenance["image"]["stand_in"] = provenance["stand_in"]
    if document["power"].get("source") == "replay" or provenance["simulated"]:
        provenance["simulated"] = True
    numerics, own = document["numerics"], given["precision"]
    worst = {"quantity": "loss", "deviation": 0.01, "tolerance": 0.1}
    proof = {"precision": own, "state": "passed", "worst": worst, "mismatched": []}
    bad = {"precision": own, "state": "failed", "worst": {**worst, "deviation": 1.0}, "mismatched": ["loss"]}
    if given["smoke"]:
        document["numerics"] = {"state": "not_run", "reason": SKIPPED, "precisions": [], "run_checks": []}
    else:
        numerics["precisions"] = {"passed": [proof], "failed": [{**bad, "reason": "off"}]}.get(numerics["state"], [])
    if numerics["state"] == "not_run":
        given["probe_numerics"] = False
        numerics["reason"] = SKIPPED
    if numerics["state"] == "failed" and document["status"]["state"] == "completed":
        document["status"] |= {"state": "numerics_mismatch", "exit_code": 5}


def _settle_steps(document: dict[str, Any], step: float) -> None:
    given, count = document["configuration"], STEPS if step else 0
    quantiles = {f"p{share}": step for share in (0, 1, 5, 25, 50, 75, 90, 95, 99, 100)}
    training = document["workload"]["task"] == "training"
    listed: list[float] | None = None if count else []
    document["steps"] = {
        "count": count,
        "untimed": WARMUP if count else 0,
        "units": count * given["batch_size"],
        "updates": count if training else 0,
        "seconds": listed,
        "data_wait_seconds": listed,
        "losses": listed,
        "quantiles": quantiles if count else None,
    }
    size, units = given["steps_per_epoch"], given["batch_size"]
    joules = {"value": None, "unit": "J", "reason": NOT_MEASURED}
    document["epochs"] = [
        {"index": index, "seconds": size * step, "units": size * units, "steps": size, "energy": joules}
        for index in range(1, 1 + (count // size if size else 0))
    ]
    latency = document["metrics"]["latency_p99"]["value"] if given["concurrency"] and count else None
    if given["concurrency"] and count:
        of_all = dict.fromkeys(quantiles, latency if document["metrics"]["latency_p99"]["unit"] == "s" else step)
        parts = ("preprocessing", "transfer", "retrieval", "other")
        document["requests"] = {
            "count": STEPS - WARMUP,
            "latencies": None,
            "quantiles": of_all,
            "parts": {"compute": of_all, **{name: dict.fromkeys(quantiles, 0.0) for name in parts}},
        }
    else:
        document["requests"] = {"reason": NOT_MEASURED}


def _settle_times(document: dict[str, Any], step: float) -> None:
    spans = {"import": 0.5, "data": 0.5, "model": 0.5, "compile": step, "warmup": (WARMUP - 1) * step}
    spans["steady"] = (STEPS - WARMUP) * step
    if chosen := document["phases"]["compile"]["seconds"]:
        spans["compile"] = chosen if chosen > 1 else step
    if step:
        document["phases"] = {name: {"seconds": seconds} for name, seconds in spans.items()}
        document["status"] |= {"phase": "steady", "exit_code": STATUSES[document["status"]["state"]].exit_code}
    else:
        last = document["status"]["phase"]
        before = list(spans)[: list(spans).index(last)] if last in spans else []
        missing = {"seconds": None, "reason": NOT_MEASURED}
        document["phases"] = {name: {"seconds": 0.5} if name in before else missing for name in spans}
        document["status"]["exit_code"] = STATUSES[document["status"]["state"]].exit_code
    wall = sum(span["seconds"] or 0.0 for span in document["phases"].values()) + 1.0
    # Runs of one host with other ids do not start together; all are of one day, which is one session.
    began = datetime.fromisoformat(document["started"]) + timedelta(milliseconds=crc32(document["id"].encode()) % 10**7)
    document["started"] = _timestamp(began)
    document["finished"] = _timestamp(began + timedelta(seconds=wall))
    for name in ("elapsed_monotonic", "elapsed_kernel"):
        document["conditions_after"][name] = {"value": wall, "unit": "s"}
    steady, rate = document["steadiness"]["steady"], document["metrics"]["throughput"]
    reason = {"reason": document["steadiness"].get("reason", NOT_MEASURED)}
    change, low, high = (0.05, 0.04, 0.06) if steady is False else (0.0, -0.01, 0.01)
    measured = bool(step) and steady is not None
    drift = {"value": change, "unit": "1"} if measured else {"value": None, "unit": "1", **reason}
    around = {"low": low, "high": high, "unit": "1"} if measured else {"low": None, "high": None, "unit": "1", **reason}
    of_rate = f"{rate['unit'].removesuffix('/s')}/s"
    none: dict[str, Any] = {"low": None, "high": None, "unit": of_rate, "reason": NOT_MEASURED}
    document["steadiness"] = {
        "steady": steady if measured else None,
        **({} if measured else reason),
        "drift": drift,
        "drift_interval": around,
        "throughput_interval": none,
        "outliers": {"count": 0, "share_of_steps": 0.0, "share_of_time": 0.0} if step else None,
    }


def _timestamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def _settle_metrics(document: dict[str, Any], step: float) -> None:
    given, metrics = document["configuration"], document["metrics"]
    unit = document["workload"]["unit"] = metrics["throughput"]["unit"].removesuffix("/s")
    window, units = (STEPS - WARMUP) * step, (STEPS - WARMUP) * given["batch_size"]
    training, requests = document["workload"]["task"] == "training", document["requests"]
    peak = metrics["peak_process_memory"]["value"]
    derived: dict[str, float | None] = {"peak_process_memory": None if peak is None else max(peak, PROCESS_MIB)}
    if step:
        rate = metrics["throughput"]["value"]
        devices = document["accelerator"]["count"]
        derived |= {"throughput": rate, "throughput_per_device": rate / devices, "step_time_mean": step}
        flops = document["workload"]["flops"]
        if not 1 < flops["needed_per_unit"] <= flops["per_unit"]:
            flops["needed_per_unit"] = flops["per_unit"]  # as of a model without causal attention
        derived |= {"achieved_flops": rate * flops["needed_per_unit"]}
        derived |= {"achieved_flops_full_attention": rate * flops["per_unit"]}
        derived |= {"training_time": STEPS * step} if training else {}
        derived |= {} if "count" in requests else {f"step_time_p{share}": step for share in (50, 90, 95, 99)}
        if "count" in requests:
            slowest = requests["quantiles"]["p50"]
            derived |= {f"latency_{name}": slowest for name in ("mean", "p50", "p90", "p95", "p99", "max")}
            derived |= {f"latency_{part}_mean": quantiles["p50"] for part, quantiles in requests["parts"].items()}
        if document["epochs"]:
            derived |= {"epoch_time": document["epochs"][0]["seconds"]}
    first = [document["phases"][name]["seconds"] for name in ("import", "data", "model", "compile")]
    derived |= {"time_to_first_step": None if None in first else sum(first)}
    each = metrics["energy_per_unit"]
    document["power"], of_energy = _power(
        document["power"],
        each["value"] * units if each["unit"] != "a" else None,
        window,
        given,
    )
    if of_energy and step:
        derived |= of_energy | {"energy_per_unit": each["value"], "energy_per_device": of_energy["energy"]}
        derived |= {
            "units_per_watt_hour": 3600 * units / of_energy["energy"],
            "throughput_per_watt": units / of_energy["energy"],
        }
    missing = {"value": None, "reason": NOT_MEASURED}
    impossible = set(impossible_metrics(TOKENS, document["workload"]["task"], given["replicas"]))
    if document["workload"]["flops"]["needed_per_unit"] < document["workload"]["flops"]["per_unit"]:  # causal attention
        impossible = {name for name in impossible if not name.endswith("_full_attention")}
    document["metrics"] = {
        name: {"value": value, "unit": of} if (value := derived.get(name)) is not None else {**missing, "unit": of}
        for name, of in units_of_metrics(unit, document["workload"]["task"]).items()
        if name not in impossible
    }


def _power(
    power: dict[str, Any], joules: float | None, window: float, given: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, float]]:
    """The part `power` with one device that used so much, and the metrics of it; without energy no meter."""
    if joules is None or not window:
        return {"reason": NOT_MEASURED}, {}
    energy, mean = {"value": joules, "unit": "J"}, {"value": joules / window, "unit": "W"}
    replayed = power.get("source") == "replay"
    meter = "replay:trace.json" if replayed else "a"
    given["meter"] = meter
    missing = {"value": None, "reason": NOT_MEASURED}
    readings: dict[str, Any] = {
        "source": meter.partition(":")[0],
        "scope": "package",
        "method": "counter",
        "sampling_period_seconds": METER_PERIOD,
        "update_period_seconds": METER_PERIOD,
        "averaging_time": {**missing, "unit": "s"},
        "samples": round(window / METER_PERIOD),
        "failed_readings": 0,
        "idle": {"duration": {**missing, "unit": "s"}, "power": {**missing, "unit": "W"}},
        "counter_integral_difference": {**missing, "unit": "1"},
    }
    if "trace" in power:
        readings["trace"] = _trace(window, joules / window)
    return {**readings, "devices": [{"name": "a", "energy": energy, "power_mean": mean}]}, {
        "energy": joules,
        "power_mean": joules / window,
    }


def _trace(window: float, watts: float) -> dict[str, Any]:
    """The course of a power that was half as high until the timed window began, an interval before."""
    count = max(1, min(400, int(window / METER_PERIOD)))
    interval = window / count
    shape = [float(f"{each:.5g}") for each in (watts / 2, *[watts] * count)]
    of_window = {"begin_seconds": -interval, "interval_seconds": interval, "window_seconds": window}
    return {**of_window, "rest_until_seconds": None, "watts": shape}


def mutations(document: dict[str, Any], within: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The document with a place `within` it changed: values replaced by others, keys dropped, foreign keys added."""
    for path, value, rules in _places(document, [SCHEMA], ()):
        if path[: len(within)] != within:
            continue
        words = [*WORDS, *QUIRKS] if isinstance(value, str) else WORDS[:1]
        for other in [*VALUES, *words, *_at_the_edge(rules)]:
            if json.dumps(other) != json.dumps(value):
                yield path, changed(document, path, other)
        if isinstance(value, dict):
            for key in value:
                yield (*path, key), changed(document, path, {k: v for k, v in value.items() if k != key})
            unused = {key for rule in rules for key in rule.get("properties", {})} - set(value)
            for key in ["unknown", "Not a name", "a\n", *sorted(unused)]:
                for fill in (None, "text", 1, {"value": 1, "unit": "s"}):
                    yield (*path, key), changed(document, path, {**value, key: fill})


def judge_of_changes(base: Any, schema: Any) -> Draft202012Validator:
    """jsonschema's validator for copies of a valid document that share with it what did not change.

    A part that was valid under a rule once is not looked at again: a tenth of the work.
    """
    alive = {id(node): node for node in _nodes(base)}
    passed: set[tuple[int, int, str]] = set()

    def once(keyword: str) -> Any:
        really = Draft202012Validator.VALIDATORS[keyword]

        def check(validator: Any, rule: Any, instance: Any, parent: Any) -> Iterator[ValidationError]:
            key = (id(instance), id(parent)) if id(instance) in alive else None
            if key is None or (*key, keyword) not in passed:
                clean = True
                for error in really(validator, rule, instance, parent) or ():
                    clean = False
                    yield error
                if clean and key is not None:
                    passed.add((*key, keyword))

        return check

    keywords = ("$ref", "properties", "items", "oneOf", "allOf", "additionalProperties")
    return extend(Draft202012Validator, {keyword: once(keyword) for keyword in keywords})(schema)


def _nodes(value: Any) -> Iterator[Any]:
    """Objects and arrays of a document."""
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _nodes(inner)


def rules_of(schema: Any = SCHEMA) -> Iterator[tuple[int, str]]:
    """Every rule of the schema, by the identity of the schema it stands in and its keyword."""
    if isinstance(schema, dict):
        closed = [keyword for keyword in schema if keyword in RULES and not isinstance(schema[keyword], dict)]
        yield from ((id(schema), keyword) for keyword in closed)
        for keyword, inner in schema.items():
            if keyword in ("properties", "$defs"):
                for each in inner.values():
                    yield from rules_of(each)
            elif keyword != "if":
                for each in inner if isinstance(inner, list) else [inner]:
                    yield from rules_of(each)


def put(document: Any, path: Path, value: Any) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


@cache
def _text(whole: bool) -> str:
    return json.dumps(_mended(_sample(SCHEMA, whole)))


def _sample(schema: Any, whole: bool) -> Any:
    schema = _resolved(schema)
    if "const" in schema or "enum" in schema:
        return schema.get("const", (schema.get("enum") or [None])[0])
    if "oneOf" in schema:
        options = [_sample(option, whole) for option in schema["oneOf"]]
        return options[0] if whole else next((option for option in options if option is None), options[0])
    kinds = schema.get("type", "object")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "null" in kinds and not whole:
        return None
    return _of_kind(kinds[0], schema, whole)


def _of_kind(kind: str, schema: dict[str, Any], whole: bool) -> Any:
    if kind == "object":
        required = schema.get("required", [])
        wanted = dict.fromkeys([*required, *(schema.get("properties", {}) if whole else [])])
        foreign = schema.get("additionalProperties")
        made = {key: _sample(schema.get("properties", {}).get(key, foreign), whole) for key in wanted}
        return made | ({"a_name": _sample(foreign, whole)} if whole and isinstance(foreign, dict) else {})
    if kind == "array":
        count = schema.get("minItems", int(whole))
        return [_sample(schema["items"], whole) for _ in range(count)]
    if kind == "string":
        return next(word for word in WORDS if re.search(schema.get("pattern", ""), word))
    if kind == "boolean":
        return False
    least = max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)
    return min(least, schema.get("maximum", least))


def _mended(document: dict[str, Any]) -> dict[str, Any]:
    """Without what may not stand beside the rest, and with the reasons for what is missing."""
    for _ in range(3):
        for error in [leaf for error_above in VALIDATOR.iter_errors(document) for leaf in _leaves(error_above)]:
            path = tuple(error.absolute_path)
            if error.validator is None:  # a schema that is `false`: what our schemas forbid is a reason beside a value
                _at(document, path).pop("reason", None)
            elif error.validator == "required":
                missing = next(
                    key for key in cast("list[str]", error.validator_value) if key not in _at(document, path)
                )
                put(document, (*path, missing), "a reason")
    VALIDATOR.validate(document)
    return document


def _leaves(error: ValidationError) -> Iterator[ValidationError]:
    """What is wrong within the alternatives, where none of them fits."""
    if error.context:
        yield from (leaf for inner in error.context for leaf in _leaves(inner))
    else:
        yield error


def _places(value: Any, schemas: list[Any], path: Path) -> Iterator[tuple[Path, Any, list[dict[str, Any]]]]:
    rules = [rule for schema in schemas for rule in _alternatives(schema)]
    yield path, value, rules
    if isinstance(value, dict):
        counts: Counter[str] = Counter()
        for key, item in value.items():
            inner = [r["properties"][key] for r in rules if key in r.get("properties", {})]
            foreign = [r["additionalProperties"] for r in rules if isinstance(r.get("additionalProperties"), dict)]
            shared = str([schema.get("$ref") for schema in inner or foreign if "properties" not in schema])
            counts[shared] += "$defs" in shared
            if counts[shared] <= 3:  # there are dozens of metrics, and all follow one definition
                yield from _places(item, inner or foreign, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:1]):
            yield from _places(item, [r["items"] for r in rules if "items" in r], (*path, index))


def _alternatives(schema: Any) -> Iterator[dict[str, Any]]:
    schema = _resolved(schema)
    yield schema
    for option in schema.get("oneOf", []):
        yield from _alternatives(option)


def _at_the_edge(rules: list[dict[str, Any]]) -> Iterator[Any]:
    """Values on both sides of every limit."""
    for rule in rules:
        yield from rule.get("enum", [])
        for keyword in ("minimum", "maximum", "exclusiveMinimum"):
            if keyword in rule:
                yield from (rule[keyword] + step for step in (-1, -0.5, 0, 0.5, 1))
        if "maxItems" in rule:
            yield from ([_sample(rule["items"], whole=True)] * (rule["maxItems"] + step) for step in (0, 1))


def _resolved(schema: Any) -> dict[str, Any]:
    """A schema with what it refers to, narrowed by what stands beside the reference."""
    if "$ref" not in schema:
        return dict(schema)
    shared = _resolved(SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]])
    narrowed = {
        name: {**shared.get("properties", {}).get(name, {}), **inner}
        for name, inner in schema.get("properties", {}).items()
    }
    required = [*shared.get("required", []), *schema.get("required", [])]
    return {**shared, "properties": {**shared.get("properties", {}), **narrowed}, "required": required}


def changed(document: dict[str, Any], path: Path, value: Any) -> Any:
    """The document with another value at one place; the one that was given stays as it is."""
    if not path:
        return value
    other = copy.copy(document)
    other[path[0]] = changed(document[path[0]], path[1:], value)
    return other


def _at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def under_load(name: str, kind: str, share: float) -> dict[str, Any]:
    """A result one of whose two devices had its clocks held down for a share of the timed window."""
    document = result()
    document["steps"] |= {"count": 50, "untimed": 10}
    document["metrics"]["step_time_mean"] = {"value": 0.1, "unit": "s"}
    window = 4.0
    absent = {"value": None, "reason": "the device does not report it"}
    clock = {part: {**absent, "unit": "MHz"} for part in ("min", "median")}
    traffic = {part: {**absent, "unit": "MiB"} for part in ("received", "sent", "traffic")}
    limits = [{"name": name, "kind": kind, "duration": {"value": share * window, "unit": "s"}, "method": "samples"}]
    load = {"samples": 100, "clock": clock, "memory_clock": clock, "traffic_method": None, **traffic}
    longest = 0.0 if kind == "other" else share * window
    used = {"energy": {**absent, "unit": "J"}, "power_mean": {**absent, "unit": "W"}}
    document["power"] = {
        **POWER,
        "devices": [
            {"name": "idle", **used},
            {"name": "a", **used, "load": {**load, "limited": {"value": longest, "unit": "s"}, "limits": limits}},
        ],
    }
    return document


# What a meter without energy says.
POWER: dict[str, Any] = {
    "source": "nvml",
    "scope": "package",
    "method": None,
    "sampling_period_seconds": 0.1,
    "update_period_seconds": 0.1,
    "averaging_time": {"value": None, "unit": "s", "reason": "unknown"},
    "samples": None,
    "failed_readings": 0,
    "idle": {
        "duration": {"value": None, "unit": "s", "reason": "none"},
        "power": {"value": None, "unit": "W", "reason": "none"},
    },
    "counter_integral_difference": {"value": None, "unit": "1", "reason": "none"},
}
