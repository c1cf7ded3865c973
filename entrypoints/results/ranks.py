"""What several ranks reported, as the messages of one run: the slowest one's, with what all of them did together."""

from __future__ import annotations

import math
from typing import Any, Sequence, TypeVar

from entrypoints.contract.messages import Data, Message, Phase, RunCheck, Step
from entrypoints.contract.points import Verified
from entrypoints.contract.session import DeviceFacts, Usage

T = TypeVar("T")


def combined(ranks: Sequence[Sequence[Message]]) -> Sequence[Message]:
    """Return the messages of the rank with the fewest steps, which all have finished, or with the longest window.

    Its steps have the units of all ranks, and the mean of their losses.
    """
    if len(ranks) == 1:
        return ranks[0]
    slowest = max(range(len(ranks)), key=lambda rank: (-len(_of(Step, ranks[rank])), _window(ranks[rank])))
    together = zip(*(_of(Step, messages) for messages in ranks))
    steps = iter([_step(own[slowest], own) for own in together])
    verified = iter([_verified(each) for each in zip(*(_of(Verified, messages) for messages in ranks))])
    merged: list[Message] = []
    for message in ranks[slowest]:
        if isinstance(message, Step):
            merged.append(next(steps))
        elif isinstance(message, Verified):
            merged.append(next(verified, message))
        elif isinstance(message, RunCheck):
            merged.append(message._replace(faults=_faults(message.name, ranks)))
        else:
            merged.append(_of_all(message, ranks))
    return merged


def _window(messages: Sequence[Message]) -> float:
    """Return the seconds of the steps in the timed window."""
    begun = next((at for at, each in enumerate(messages) if isinstance(each, Phase) and each.name == "steady"), None)
    return 0.0 if begun is None else math.fsum(step.seconds for step in _of(Step, messages[begun:]))


def _step(slowest: Step, all_ranks: Sequence[Step]) -> Step:
    losses = [step.loss for step in all_ranks if step.loss is not None]
    sums: dict[str, Any] = {
        name: sum(getattr(step, name) or 0 for step in all_ranks)
        for name in ("units", "tokens", "padding", "accepted", "decode_seconds")
        if getattr(slowest, name) is not None
    }
    if slowest.call_seconds is not None:  # as by nccl-tests' `-a 3`: a collective is over when all ranks have done it
        sums["call_seconds"] = list(map(max, zip(*(step.call_seconds or () for step in all_ranks))))
    return slowest._replace(loss=math.fsum(losses) / len(losses) if losses else None, **sums)


def _verified(all_ranks: Sequence[Verified]) -> Verified:
    return Verified(list(map(max, zip(*(verified.deviations for verified in all_ranks)))))


def _of_all(message: Message, ranks: Sequence[Sequence[Message]]) -> Message:
    """Return a message of a rank with what all ranks have together."""
    world = len(ranks)
    if isinstance(message, DeviceFacts):
        granularity = "share" if message.kind == "cpu" else message.granularity
        return message._replace(devices=message.devices * world, granularity=granularity, ranks=world, replicas=world)
    if isinstance(message, Data):
        return message._replace(samples=message.samples * world)
    if isinstance(message, Usage):
        return Usage(*(_largest(values) for values in zip(*(_of(Usage, messages)[-1] for messages in ranks))))
    return message


def _largest(values: Sequence[float | str]) -> float | str:
    reasons = [value for value in values if isinstance(value, str)]
    return reasons[0] if reasons else max(value for value in values if not isinstance(value, str))


def _faults(name: str, ranks: Sequence[Sequence[Message]]) -> list[str]:
    made = [(rank, check) for rank, messages in enumerate(ranks) for check in _of(RunCheck, messages)]
    return [f"rank {rank}: {fault}" for rank, check in made if check.name == name for fault in check.faults]


def _of(kind: type[T], messages: Sequence[Message]) -> list[T]:
    return [message for message in messages if isinstance(message, kind)]
