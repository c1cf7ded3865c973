"""Defaults of a card for the device that is here: a batch for its memory, a precision that it has, a model compiled."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, TypedDict

from entrypoints.metering import present_device
from entrypoints.metering.present_device import PresentDevice
from entrypoints.planning.arguments import Options
from entrypoints.system.gpu_software import VOLTA, obstacle_to_triton

MIB_OF_GIB = 1024
AMPERE = (8, 0)  # compute capability of CUDA: the first with bf16 and tf32; VOLTA has fast fp16
# What takes the place of a precision, by the capability that it needs.
INSTEAD = {"bf16": (AMPERE, "fp16"), "tf32": (AMPERE, "fp32"), "fp16": (VOLTA, "fp32")}
OF_TENSORFLOW = {"bf16": "tf32", "fp16": "tf32"}  # in which half precision is a choice of who asks for it
DEVICES_WITH_DEFAULTS = ("cuda", "xpu")


class ChosenFor(TypedDict):
    """The device that defaults were chosen for, and what differs from the card's, in sentences."""

    name: str | None
    memory_mib: float | None
    notes: list[str]


class DeviceDefaults(NamedTuple):
    """Defaults, and the device that they were chosen for; None if they are the same for every device of a kind."""

    values: Mapping[str, Any]
    chosen_for: ChosenFor | None


def for_device(card_defaults: Mapping[str, Any], framework: str, kind: str, options: Options) -> DeviceDefaults:
    """Return the defaults of a task on the device of a kind that is here, the first that a run would use."""
    if kind not in DEVICES_WITH_DEFAULTS:
        single = framework == "tensorflow" and kind == "ipu"  # whose networks have no half precision there
        return DeviceDefaults({**card_defaults, "precision": "fp32"} if single else card_defaults, None)
    device, notes = present_device.find(kind), []
    values = for_memory(card_defaults, device.memory_mib)
    precision, why = _precision(values["precision"], framework, kind, device)
    if why and options.precision is None:
        notes.append(f"precision {precision} in place of {values['precision']}: {why}")
    values["precision"] = precision
    if options.compile:
        values.pop("compile", None)
    if values.get("compile"):
        why_not = _obstacle(framework, options, device)
        if why_not:
            del values["compile"]
            notes.append(f"not compiled: {why_not}")
    return DeviceDefaults(values, ChosenFor(name=device.name, memory_mib=device.memory_mib, notes=notes))


def for_memory(card_defaults: Mapping[str, Any], memory_mib: float | None) -> dict[str, Any]:
    """Return the defaults of a task on a device with so much memory; unknown memory may be small."""
    values = dict(card_defaults)
    for tier in values.pop("by_memory", ()):
        if memory_mib is not None and memory_mib >= tier["gib"] * MIB_OF_GIB:
            values.update({name: size for name, size in tier.items() if name != "gib"})
    return values


def _precision(wanted: str, framework: str, kind: str, device: PresentDevice) -> tuple[str, str | None]:
    """Return the precision that a device has in place of a default, and why it is another one."""
    precision, why = wanted, None
    if framework == "tensorflow" and wanted in OF_TENSORFLOW:
        precision, why = OF_TENSORFLOW[wanted], "TensorFlow computes in half precision only if it is asked to"
        if device.capability is None:  # AMD's, which have no TF32 in TensorFlow, or unknown
            return "fp32", why
    while kind == "cuda" and device.capability is not None and precision in INSTEAD:
        least, instead = INSTEAD[precision]
        if device.capability >= least:
            break
        precision, why = instead, f"{device.name} does not have it"
    if precision == "tf32" and device.capability is None:  # AMD's, which have no TF32, or unknown
        return "fp32", why or f"{device.name or 'this device'} is not known to have it"
    return precision, why


def _obstacle(framework: str, options: Options, device: PresentDevice) -> str | None:
    """Return why a model is not compiled by default."""
    if framework != "pytorch":
        return f"{framework} compiles only if it is asked to"
    asked = (
        (options.smoke, "--smoke is to be quick"),
        (options.concurrency, "a request may come before a model is compiled"),
        (options.find_max_batch, "each trial would compile again"),
        (options.stages * options.tensor > 1, "parts of a model are compiled only if it is asked for"),
        (options.activation_checkpointing, "a compiler decides itself what is computed again"),
    )
    return next((why for holds, why in asked if holds), None) or obstacle_to_triton(device.capability)
