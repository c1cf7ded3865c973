"""Rules about the machine: accelerator, host and environment are possible, and fit each other."""

from __future__ import annotations

import re
from typing import Any, Iterator

from entrypoints.contract.choices import FP8, WITH_GRAPHS, compiler_of, precision_kind
from entrypoints.results import peaks
from entrypoints.rules.facts import Document, Facts, device_named, is_number
from entrypoints.rules.rule import differ, rule
from entrypoints.system import openmp

FRAMEWORKS = ("pytorch", "tensorflow")
KINDS = {  # of devices, and the precisions that sessions on them have
    "cpu": ("fp32", "bf16", FP8),
    "cuda": ("fp32", "tf32", "bf16", "fp16", FP8),
    "xpu": ("fp32", "bf16", "fp16"),
    "hpu": ("fp32", "bf16"),
    "ipu": ("fp32", "fp16"),
}
EXECUTION = {  # how it begins, by framework and whether the model is compiled
    "pytorch": {False: "eager,", True: "compiled by {compiler}"},
    "tensorflow": {False: "graph (tf.function),", True: "graph (tf.function) compiled by XLA,"},
}
MOST_PROCESSORS = 8192  # of a Linux kernel: the most that can count a second at the same time
CPU_VENDORS = {"AMD ": "AuthenticAMD", "Intel(R) ": "GenuineIntel"}  # as CPUID has them, by how names begin
PLUGGED = 2  # memory may be plugged into a virtual machine, or out of it, between two readings
RANGES = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")
NO_WINDOW = "the timed window did not end"
LONGEST = 1000  # characters of a variable in a result


@rule(
    "kind and framework are both those of sifmark, or both others, as in tests; a CPU is one node, the host, with its "
    "model, the vendor of that name and its memory, or a share of it for each rank; a GPU is one device for each rank; "
    "IPUs are one for each stage of each replica, in one process or in poprun's instances; the precision is one that "
    "such a device has, mixed or pure as it computes, scaled if FP8; `execution` says whether the model is "
    "compiled",
    "Numbers are compared by device.",
    "memory: a factor of 2, since memory may be plugged in meanwhile",
)
def device_is_one_of_its_kind(facts: Facts) -> Iterator[str]:
    """Check the accelerator by its kind."""
    device, given, provenance = facts.document["accelerator"], facts.configuration, facts.document["provenance"]
    kind, framework = device["kind"], given["framework"]
    if kind not in KINDS or framework not in FRAMEWORKS:
        if (kind in KINDS or framework in FRAMEWORKS) and not provenance["stand_in"]:
            yield f"accelerator.kind: {kind!r} in {framework!r} is none of sifmark, nor a stand-in"
        return
    if "count" not in device:
        return
    count = given["replicas"] * (1 if given["strategy"] == "phased" else given["stages"]) * given.get("tensor", 1)
    if device["count"] != count:
        yield differ("accelerator.count", device["count"], count, f"a {kind}")
    if device["ranks"] != facts.ranks:
        yield differ("accelerator.ranks", device["ranks"], facts.ranks, f"a {kind}")
    yield from _of_precision(facts, kind)
    execution = EXECUTION[framework][bool(given["compile"])].format(compiler=compiler_of(kind))
    if facts.served:
        execution = f"by {facts.served['engine']} "
    if kind != "ipu" and not device["execution"].startswith(execution):
        yield differ("accelerator.execution", device["execution"][:60], execution, "configuration.compile")
    yield from _of_kind(facts, device)


@rule(
    "`compilation` is there only for a model that PyTorch compiled; CUDA graphs were recorded or skipped only on GPUs "
    "in a mode that has them; `execution` names graphs that were replayed and breaks between graphs, and no others",
    "What PyTorch counted says what ran.",
)
def execution_is_what_was_counted(facts: Facts) -> Iterator[str]:
    """Compare the counts of a compilation with the configuration and the text."""
    device, given = facts.document["accelerator"], facts.configuration
    counts = device.get("compilation")
    if counts is None:
        return
    if not given["compile"] or given["framework"] != "pytorch":
        yield f"accelerator.compilation: {given['framework']} compiled nothing with torch.compile"
    graphs = counts["cuda_graphs"] is not None or counts["cuda_graphs_skipped"] is not None
    if graphs and not (device["kind"] == "cuda" and given["compile"] in WITH_GRAPHS):
        yield f"accelerator.compilation.cuda_graphs: a {device['kind']} in the mode {given['compile']} has none"
    texts = {"replayed as CUDA graphs": counts["cuda_graphs"], "with graph breaks": counts["graph_breaks"]}
    for text, number in texts.items():
        if number is not None and (text in device["execution"]) != (number > 0):
            yield differ("accelerator.execution", device["execution"][:60], f"{number} graphs or breaks", "compilation")


def _of_precision(facts: Facts, kind: str) -> Iterator[str]:
    given = facts.configuration
    if given["precision"] not in KINDS[kind]:
        yield differ("configuration.precision", given["precision"], ", ".join(KINDS[kind]), f"a {kind}")
    expected = precision_kind(given["precision"], kind, facts.task)
    if given.get("precision_kind", expected) != expected:
        yield differ("configuration.precision_kind", given["precision_kind"], expected, f"a {kind}")
    if (given.get("fp8_scaling") is not None) != (given["precision"] == FP8):
        yield differ("configuration.fp8_scaling", given.get("fp8_scaling"), given["precision"], "precision")


def _of_kind(facts: Facts, device: Document) -> Iterator[str]:
    kind, software = device["kind"], facts.document["provenance"]["software"]
    if kind == "cpu":
        yield from _of_host(facts, device)
    elif kind == "ipu" and (device.get("vendor"), device["granularity"]) != ("Graphcore", "package"):
        yield "accelerator: an ipu is a package of Graphcore"
    elif kind in ("cuda", "xpu") and str(software["framework_version"]).endswith("+cpu"):
        yield f"accelerator.kind: {kind} with {software['framework_version']}, which is for CPUs"


def _of_host(facts: Facts, device: Document) -> Iterator[str]:
    host = facts.document["host"]
    whole = "node" if device["ranks"] == 1 else "share"
    if device["granularity"] != whole:
        yield differ("accelerator.granularity", device["granularity"], whole, "a cpu")
    name = device.get("name")
    if name != host["cpu_model"]["value"]:
        yield differ("accelerator.name", name, host["cpu_model"]["value"], "host.cpu_model")
    vendor = next((vendor for first, vendor in CPU_VENDORS.items() if str(name).startswith(first)), None)
    if vendor and device.get("vendor") not in (None, vendor):
        yield differ("accelerator.vendor", device["vendor"], vendor, f"the name {name}")
    memory, of_host = device.get("memory_mib"), host["memory"]["value"]
    if is_number(memory) and is_number(of_host) and not of_host / PLUGGED <= memory <= of_host * PLUGGED:
        yield differ("accelerator.memory_mib", memory, of_host, "host.memory")
    for field in ("device_conditions", "device_conditions_after"):
        if "driver" in facts.document.get(field, {}):
            yield f"{field}: a cpu is the host, whose conditions are elsewhere"
    if "identifier" in device:
        yield "accelerator.identifier: no vendor's library names a cpu"


@rule(
    "`peak`, `memory_bandwidth` and `rated_power` are those of the device's name in the table of sifmark, and have a "
    "source",
    "Utilisation is a share of the peak: a number that is in no table cannot be checked.",
)
def peaks_are_those_of_the_table(facts: Facts) -> Iterator[str]:
    """Look the device up, if there is a number: the table of an older sifmark may have lacked it."""
    device = facts.document["accelerator"]
    entries = {name: device.get(name) for name in ("peak", "memory_bandwidth", "rated_power")}
    for name, entry in entries.items():
        without = entry is None or entry["value"] is None
        if without != (f"{name}_source" not in device):
            yield f"accelerator.{name}_source: a number has a source"
        if name == "rated_power" and without != ("rated_power_scope" not in device):
            yield "accelerator.rated_power_scope: a number has a scope"
    if not any(entry and entry["value"] is not None for entry in entries.values()):
        return
    named = device_named(device)
    rated = peaks.rated_power(named)
    cited = {
        "peak": peaks.of_device(named, facts.configuration["precision"]).flops,
        "memory_bandwidth": peaks.memory(named).bandwidth,
        "rated_power": rated.watts,
    }
    for name, entry in entries.items():
        if entry and entry["value"] not in (None, cited[name]):
            yield differ(f"accelerator.{name}", entry["value"], cited[name], "the table of peaks")
    if device.get("rated_power_scope", rated.scope) != rated.scope:
        yield differ("accelerator.rated_power_scope", device["rated_power_scope"], rated.scope, "the table of peaks")


@rule(
    "a device whose name is in the table of peaks is of the vendor of that name, and has the memory of an entry with "
    "it: 0.88 to 1.005 of the size that the vendor states, or any part of one that a processor shares",
    "Names are compared, and a name is easier to change than all that a driver says.",
    "a part that drivers and error correction keep",
)
def device_is_that_of_its_name(facts: Facts) -> Iterator[str]:
    """Compare vendor and memory with those of the name."""
    device = facts.document["accelerator"]
    entries = peaks.named(device_named(device))
    if not entries:
        return
    vendor, expected = device.get("vendor"), peaks.vendor(device["name"])
    if vendor not in (None, expected):
        yield differ("accelerator.vendor", vendor, expected, f"the name {device['name']}")
    memory = device.get("memory_mib")
    sure = [entry for entry in entries if not entry.get("by_memory")]  # the others are not all cards of a name
    if memory is not None and sure and not any(peaks.fits(entry, memory) for entry in sure):
        yield differ("accelerator.memory_mib", memory, sure[0]["memory"]["gib"] * 1024, f"the name {device['name']}")


@rule(
    "a completed run has a version of its framework, and `libraries` no other one; `simulated` is a device of a test, "
    "a model of an IPU or a meter that plays a trace; an image is for the host's architecture",
    "Versions say what ran.",
)
def software_is_what_ran(facts: Facts) -> Iterator[str]:
    """Compare versions with each other, and with the machine."""
    provenance, power = facts.document["provenance"], facts.document["power"]
    software, kind = provenance["software"], facts.document["accelerator"]["kind"]
    version = software["framework_version"]
    if facts.completed and version is None:
        yield "provenance.software.framework_version: a completed run has imported its framework"
    for name in ("torch", *FRAMEWORKS):
        other = software["libraries"].get(name, version)
        if other != version:
            yield differ(f"provenance.software.libraries.{name}", other, version, "framework_version")
    if kind in ("cpu", "cuda", "xpu", "hpu") and provenance["simulated"] and "source" not in power:
        yield f"provenance.simulated: a {kind} without a meter is none of a test"
    image, architecture = provenance["image"], facts.document["host"]["architecture"]["value"]
    both = {architecture, image["platform"]} if image else set()
    if both == {"x86_64", "aarch64"} and software["framework"] in FRAMEWORKS:
        yield differ("provenance.image.platform", image["platform"], architecture, "host.architecture")


@rule(
    "sockets <= cores <= threads <= 8192, threads_usable <= threads, at most as many processors in `cpu_affinity`; "
    "available memory <= memory; shares of time are 0 to 100 %; stolen and waited times are 0 to those of all "
    "processors; a completed run has timed",
    "No part is larger than the whole.",
    "memory: a factor of 2, since some may be plugged in; times: those of 8192 processors, the most of Linux",
)
def facts_are_possible(facts: Facts) -> Iterator[str]:
    """Compare facts of the host with each other."""
    host, before, after = (facts.document[name] for name in ("host", "conditions", "conditions_after"))
    for part, whole in (("sockets", "cores"), ("cores", "threads"), ("threads_usable", "threads")):
        fewer, more = host[part]["value"], host[whole]["value"]
        if is_number(fewer) and is_number(more) and fewer > more:
            yield differ(f"host.{part}", fewer, more, f"at most host.{whole}")
    if is_number(host["threads"]["value"]) and host["threads"]["value"] > MOST_PROCESSORS:
        yield differ("host.threads", host["threads"]["value"], MOST_PROCESSORS, "at most a Linux kernel")
    bound, threads = before["cpu_affinity"]["value"], host["threads"]["value"]
    if isinstance(bound, str) and is_number(threads) and processors(bound) > threads:
        yield differ("conditions.cpu_affinity", bound[:60], threads, "at most host.threads")
    memory = host["memory"]["value"]
    for field, conditions in (("conditions", before), ("conditions_after", after)):
        available = conditions["memory_available"]["value"]
        if is_number(available) and is_number(memory) and available > PLUGGED * memory:
            yield differ(f"{field}.memory_available", available, memory, "at most host.memory")
    yield from _counted(facts, after)


@rule(
    "no number of host and conditions is negative but a temperature; `configuration.threads` <= 8192",
    "Nothing is less than nothing.",
)
def facts_are_amounts(facts: Facts) -> Iterator[str]:
    """Look at every number."""
    if (facts.configuration["threads"] or 0) > MOST_PROCESSORS:
        yield differ("configuration.threads", facts.configuration["threads"], MOST_PROCESSORS, "at most a Linux kernel")
    for field in ("host", "conditions", "conditions_after", "device_conditions", "device_conditions_after"):
        for name in facts.document.get(field, {}):
            value: Any = _value(facts.document[field], name) if name not in ("reason", "temperature") else None
            if is_number(value) and value < 0:
                yield f"{field}.{name}: {value!r} is negative"


def _counted(facts: Facts, after: Document) -> Iterator[str]:
    delay = after.get("run_delay") or {}
    if is_number(delay.get("value")) and not 0 <= delay["value"] <= 100:
        yield f"conditions_after.run_delay: {delay['value']!r} is no share of time"
    if facts.completed and delay.get("reason") == NO_WINDOW:
        yield f"conditions_after.run_delay: {NO_WINDOW}, in a run that is {facts.state}"
    elapsed = _value(after, "elapsed_kernel")
    for name in ("cpu_quota_waited", "cpu_stolen"):
        seconds = _value(after, name)
        if is_number(seconds) and is_number(elapsed) and not 0 <= seconds <= MOST_PROCESSORS * (elapsed + 1):
            yield f"conditions_after.{name}: {seconds!r} s in {elapsed!r} s"


@rule(
    "libraries of `LD_PRELOAD` are the first in `environment.preloaded`, and in `conditions.memory_allocator`",
    "A library in place of the allocator makes another run of it.",
)
def preloaded_libraries_are_named(facts: Facts) -> Iterator[str]:
    """Compare the variable with both."""
    environment, allocator = facts.document.get("environment"), _value(facts.document["conditions"], "memory_allocator")
    if environment is None:
        return
    variable, preloaded = environment["variables"].get("LD_PRELOAD", ""), environment["preloaded"]
    names = variable.replace(":", " ").split()
    if len(variable) < LONGEST and preloaded[: len(names)] != names:
        yield differ("environment.preloaded", ", ".join(preloaded)[:200], ", ".join(names)[:200], "LD_PRELOAD")
    if isinstance(allocator, str) and ("; LD_PRELOAD=" in allocator) != bool(variable):
        yield differ("conditions.memory_allocator", allocator[:200], variable[:200], "LD_PRELOAD")


@rule(
    "`conditions_after.openmp_wait` is what `environment.variables` say to each runtime that it names",
    "A policy that was set explains the speed of a busy host.",
)
def openmp_waits_as_it_was_told(facts: Facts) -> Iterator[str]:
    """Derive the waiting of each runtime from the variables again; schema 1.1 has none."""
    given = _value(facts.document["conditions_after"], "openmp_wait")
    if given is None:
        return
    names = [each.partition(": ")[0] for each in given.split(", ")]
    expected = openmp.waits(names, facts.document["environment"]["variables"])
    if given != expected:
        yield differ("conditions_after.openmp_wait", given[:200], expected, "environment.variables")


def processors(ranges: str) -> float:
    """Return the number of processors in a text such as 0-3,8; none are infinitely many, so that they are too many."""
    if not RANGES.fullmatch(ranges):
        return float("inf")
    bounds = [part.partition("-") for part in ranges.split(",")]
    return sum(int(high or low) - int(low) + 1 for low, _, high in bounds)


def _value(part: Document, name: str) -> Any:
    """Return the value of a fact, None if it has none or if an older schema lacks it."""
    return (part.get(name) or {}).get("value")
