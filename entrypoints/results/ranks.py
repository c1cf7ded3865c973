"""What several ranks reported, as the messages of one run, and the document's part `ranks`."""

from __future__ import annotations

import math
from typing import Any, Mapping, Sequence, TypeVar

from entrypoints.contract.group import Connected
from entrypoints.contract.messages import Message, Phase, RunCheck, Skipped, Step
from entrypoints.contract.points import ALL_REDUCE, GIGA, Verified, bus_factor
from entrypoints.contract.session import DeviceFacts, Usage
from entrypoints.metering.energy import NOTHING_METERED
from entrypoints.results.json_values import Json, number
from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.metrics import devices, training
from entrypoints.results.power import power

T = TypeVar("T")
UNASKED = "a rank ended before its device was asked"
TOGETHER = "the meter counts what all ranks of the host use together"


def combined(ranks: Sequence[Sequence[Message]], firsts: Sequence[int] | None = None) -> Sequence[Message]:
    """Return the messages of the rank with the fewest steps, which all have finished, or with the longest window.

    Its steps have the units of all ranks, and the mean of their losses: of `firsts`, if these are a rank of each
    replica, whose others have the same samples.
    """
    firsts = range(len(ranks)) if firsts is None else [rank for rank in firsts if rank < len(ranks)]
    if len(ranks) == 1:
        return ranks[0]
    slowest = max(range(len(ranks)), key=lambda rank: (-len(_of(Step, ranks[rank])), _window(ranks[rank])))
    together = zip(*(_of(Step, messages) for messages in ranks))
    steps = iter([_step(own[slowest], [own[rank] for rank in firsts]) for own in together])
    verified = iter([_verified(each) for each in zip(*(_of(Verified, messages) for messages in ranks))])
    merged: list[Message] = []
    others = [message for messages in ranks if messages is not ranks[slowest] for message in _of(Skipped, messages)]
    for message in (*ranks[slowest], *others):
        if isinstance(message, Step):
            merged.append(next(steps))
        elif isinstance(message, Verified):
            merged.append(next(verified, message))
        elif isinstance(message, RunCheck):
            merged.append(message._replace(faults=_faults(message.name, ranks)))
        else:
            merged.append(_of_all(message, ranks, len(firsts)))
    return merged


def ranks(measurement: Measurement) -> list[Json] | None:
    """Return where each rank ran, and what it took; None if a single one computed."""
    if not measurement.ranks:
        return None
    used = power(measurement).get("devices", ())
    return [_rank(number, own, used) for number, own in enumerate(measurement.ranks)]


def _rank(rank: int, own: Measurement, used: Sequence[Mapping[str, Any]]) -> Json:
    placed, identifier = own.placed, own.device and own.device.identifier
    of_device = [
        device["energy"] for device in used if identifier and placed and _is_of(device, identifier, placed.host)
    ]
    return {
        "rank": rank,
        "host": placed.host if placed else None,
        "processors": placed.processors if placed else None,
        "memory_nodes": placed.memory_nodes if placed else None,
        "device": identifier,
        "steps": len(own.timed_steps),
        "window": number(own.window if own.timed_steps else None, "s", NO_STEP),
        "epoch_time": number(*training.epoch_time(own)),
        "peak_process_memory": number(*devices.peak_process_memory(own)),
        "peak_allocated_memory": number(*devices.peak_allocated_memory(own)),
        "energy": of_device[0] if len(of_device) == 1 else number(None, "J", TOGETHER if used else NOTHING_METERED),
    }


def _is_of(device: Mapping[str, Any], identifier: str, host: str) -> bool:
    return identifier in device["name"] and device.get("host", host) == host


def transport(measurement: Measurement) -> Json | None:
    """Return how the ranks are connected; None if a single one computed, or if they were never connected."""
    connected, world = measurement.connected, len(measurement.ranks)
    if connected is None or not world:
        return None
    kinds = connected.connections
    speed = bus_bandwidth(connected.bytes, connected.seconds, world) if connected.seconds else None
    return {
        "backend": connected.backend,
        "version": connected.version,
        "network": network(kinds),
        **({} if kinds else {"reason": connected.reason or "no connection was reported"}),
        "connections": list(kinds),
        "all_reduce": {
            "bytes": connected.bytes,
            "seconds": connected.seconds,
            "bus_bandwidth": number(speed, "GB/s", "it took no time that the clock shows"),
        },
    }


def network(connections: Sequence[str]) -> str | None:
    """Return the slowest kind of network among connections; None without any."""
    if any(kind in ("TCP", "NET/Socket") for kind in connections):
        return "sockets"
    if any(kind.startswith(("NET", "COLLNET")) for kind in connections):
        return "rdma"
    return "within the host" if connections else None


def bus_bandwidth(size: int, seconds: float, world: int) -> float:
    """Return the bandwidth of an all-reduce in GB/s that the slowest link has to have."""
    return size / seconds / GIGA * bus_factor(ALL_REDUCE, world)


def _window(messages: Sequence[Message]) -> float:
    """Return the seconds of the steps in the timed window."""
    begun = next((at for at, each in enumerate(messages) if isinstance(each, Phase) and each.name == "steady"), None)
    return 0.0 if begun is None else math.fsum(step.seconds for step in _of(Step, messages[begun:]))


def _step(slowest: Step, all_ranks: Sequence[Step]) -> Step:
    """Return the step of the slowest rank with what all ranks with different samples did."""
    losses = [step.loss for step in all_ranks]
    read = [loss for loss in losses if loss is not None]
    sums: dict[str, Any] = {
        name: sum(getattr(step, name) or 0 for step in all_ranks)
        for name in ("units", "tokens", "padding", "accepted", "decode_seconds")
        if getattr(slowest, name) is not None
    }
    if slowest.call_seconds is not None:  # as by nccl-tests' `-a 3`: a collective is over when all ranks have done it
        sums["call_seconds"] = list(map(max, zip(*(step.call_seconds or () for step in all_ranks))))
    return slowest._replace(loss=math.fsum(read) / len(read) if len(read) == len(losses) else None, **sums)


def _verified(all_ranks: Sequence[Verified]) -> Verified:
    return Verified(list(map(max, zip(*(verified.deviations for verified in all_ranks)))))


def _of_all(message: Message, ranks: Sequence[Sequence[Message]], replicas: int) -> Message:
    """Return a message of a rank with what all ranks, of so many replicas, have together."""
    world = len(ranks)
    if isinstance(message, DeviceFacts):
        granularity = "share" if message.kind == "cpu" else message.granularity
        return message._replace(
            devices=message.devices * world,
            granularity=granularity,
            ranks=world,
            replicas=message.replicas * replicas,
            identifier=None,
        )
    if isinstance(message, Connected):
        all_of_them = [_of(Connected, messages)[0] for messages in ranks if _of(Connected, messages)]
        kinds = sorted({kind for each in all_of_them for kind in each.connections})
        return message._replace(connections=kinds, seconds=max(each.seconds for each in all_of_them))
    if isinstance(message, Usage):
        reported = [usage for messages in ranks for usage in _of(Usage, messages)[-1:]]
        return Usage(*map(_largest, zip(*reported))) if len(reported) == world else Usage.unknown(UNASKED)
    return message


def _largest(values: Sequence[float | str]) -> float | str:
    reasons = [value for value in values if isinstance(value, str)]
    return reasons[0] if reasons else max(value for value in values if not isinstance(value, str))


def _faults(name: str, ranks: Sequence[Sequence[Message]]) -> list[str]:
    made = [(rank, check) for rank, messages in enumerate(ranks) for check in _of(RunCheck, messages)]
    return [f"rank {rank}: {fault}" for rank, check in made if check.name == name for fault in check.faults]


def _of(kind: type[T], messages: Sequence[Message]) -> list[T]:
    return [message for message in messages if isinstance(message, kind)]
