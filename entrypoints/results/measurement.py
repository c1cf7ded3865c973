"""The raw facts of one run, collected from the child's messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Sequence, TypeVar

from entrypoints.contract.choices import MeasuredPeak
from entrypoints.contract.group import Connected
from entrypoints.contract.messages import (
    PHASES,
    Data,
    Diagnosed,
    Ended,
    EngineFacts,
    Evaluated,
    Failed,
    Message,
    Phase,
    Placed,
    Request,
    RunCheck,
    Scheduled,
    Served,
    Skipped,
    Software,
    Step,
    Trial,
    Waited,
)
from entrypoints.contract.points import LastLevelCache, Omitted, Point, Verified
from entrypoints.contract.session import DeviceConditions, DeviceFacts, Executed, Usage
from entrypoints.contract.target import Target, reached
from entrypoints.metering.energy import Consumed, Metered, TotalEnergy, Window, energy_of_parts, total_energy
from entrypoints.metering.meter import Absence
from entrypoints.metering.sampling import Recording
from entrypoints.results.roofline import Flops, Work
from entrypoints.serving.load import Serving

NO_METER = Absence("nothing was metered")
NOT_REPORTED = "the device did not answer, or the run ended before it was asked"
EVALUATED = "evaluations lie between the steps"
NO_STEP = "no step of the timed window was finished"
NO_EPOCH = TotalEnergy(None, "another task of the launch did not finish this epoch")
M = TypeVar("M")


class Epoch(NamedTuple):
    """One finished pass over the data."""

    steps: tuple[Step, ...]
    window: Window


@dataclass(frozen=True)
class Measurement:
    """The facts of a run, complete or not. Times in seconds, memory in MiB."""

    unit: str
    task: str
    phases: dict[str, float]  # seconds of the finished phases
    began: dict[str, float]  # when each phase began, s of the monotonic clock
    waited: Waited | None  # if the framework was imported while idle power was measured
    last_phase: str | None
    compile_steps: tuple[Step, ...]
    warmup_steps: tuple[Step, ...]
    timed_steps: tuple[Step, ...]
    evaluations: tuple[Evaluated, ...]
    run_checks: tuple[RunCheck, ...]
    diagnosed: Diagnosed | None  # if Markov chains ran to their end
    scheduled: Scheduled | None  # if the timed window ended
    points: tuple[Point, ...]  # of a micro-benchmark
    omitted: tuple[Omitted, ...]
    verified: tuple[Verified, ...]  # before the timed window, and after it
    cache: LastLevelCache | None  # of the device, if a micro-benchmark copies within its memory
    steps_per_epoch: int | None
    device: DeviceFacts | None
    executed: Executed | None  # how the model was run in fact
    software: Software | None
    data: Data | None
    skipped: tuple[str, ...]
    failure: Failed | None
    usage: Usage
    conditions: DeviceConditions  # of the devices, when the session was open
    conditions_after: DeviceConditions  # after the last step
    peak_process_mib: float | None
    power: Metered
    flops: Flops | None  # of a unit
    work: Work | None  # of a step
    precision: str | None
    target: Target | None
    placed: Placed | None
    connected: Connected | None
    ranks: tuple[Measurement, ...]  # each one's own; none if a single rank computed
    tasks: tuple[Consumed, ...]  # by the devices of each task of a launch, this one included; none for a single task
    measured_peak: MeasuredPeak | None
    serving: Serving | None = None  # the load on an engine
    engine: EngineFacts | None = None
    trials: tuple[Trial, ...] = ()  # of the search for goodput
    whole_seconds: float | None = None  # of the correctness check and the run, once both are over

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in order."""
        return self.compile_steps + self.warmup_steps + self.timed_steps

    @property
    def timed_requests(self) -> tuple[Request, ...]:
        """The requests answered in the timed window, if streams made requests."""
        return tuple(step.request for step in self.timed_steps if step.request)

    @property
    def timed_served(self) -> tuple[Served, ...]:
        """The requests that an engine answered in the timed window."""
        return tuple(step.served for step in self.timed_steps if step.served)

    @property
    def window(self) -> float:
        """The timed window: from the end of the last warm-up step to the end of the last step."""
        return sum(step.seconds for step in self.timed_steps)

    @property
    def timed_edges(self) -> Window:
        """The timed window on the monotonic clock, which all processes of a host share; of length 0 without steps."""
        began = self.began.get("steady", 0.0)
        return began, began + self.window

    @property
    def reaching(self) -> Evaluated | None:
        """The first evaluation that reached the target."""
        return next(
            (evaluation for evaluation in self.evaluations if self.target and reached(self.target, evaluation)), None
        )

    @property
    def metered_devices(self) -> int:
        """The devices that meters read, of all tasks together."""
        if self.tasks:
            return sum(len(task.power.get("devices", ())) for task in self.tasks if not task.elsewhere)
        return 0 if isinstance(self.power, Absence) else len(self.power.facts.devices)

    @property
    def timed_energy(self) -> TotalEnergy:
        """The energy of all devices together over the timed window."""
        return self._energy(self.timed_edges, [task.window for task in self.tasks if not task.elsewhere])

    @property
    def decode_energy(self) -> TotalEnergy:
        """The energy of all devices together while texts were continued, from the first new token of each on."""
        by_task = [task.decode for task in self.tasks if not task.elsewhere]
        own = () if by_task else (energy_of_parts(self.power, self._decode_windows()),)
        return self._summed([*by_task, *own])

    def _decode_windows(self) -> list[Window]:
        ends = accumulate((step.seconds for step in self.timed_steps), initial=self.began.get("steady", 0.0))
        next(ends)
        steps = [(end, step.generated) for end, step in zip(ends, self.timed_steps)]
        return [(end - math.fsum(texts.others), end) for end, texts in steps if texts and texts.others]

    @property
    def epoch_energies(self) -> Sequence[TotalEnergy]:
        """The energy of all devices together over each epoch."""
        counted = [task.epochs for task in self.tasks if not task.elsewhere]
        return [
            self._energy(epoch.window, [epochs[at] if at < len(epochs) else NO_EPOCH for epochs in counted])
            for at, epoch in enumerate(self.epochs)
        ]

    def _energy(self, window: Window, by_task: Sequence[TotalEnergy]) -> TotalEnergy:
        """Return the energy over a window between steps; of several tasks the sum, each by its own clock."""
        if self.evaluations:
            return TotalEnergy(None, EVALUATED)
        return self._summed(by_task or [total_energy(self.power, window)])

    @staticmethod
    def _summed(parts: Sequence[TotalEnergy]) -> TotalEnergy:
        without = next((part for part in parts if part.joules is None), None)
        return without or TotalEnergy(math.fsum(part.joules or 0.0 for part in parts), None)

    @property
    def epochs(self) -> list[Epoch]:
        """The finished epochs, if an epoch is defined; the first one begins with the first step."""
        size = self.steps_per_epoch
        if not size or not self.steps:
            return []
        spans = self._spans()
        starts = range(0, len(self.steps) - size + 1, size)
        return [Epoch(self.steps[at : at + size], (spans[at][0], spans[at + size - 1][1])) for at in starts]

    def _spans(self) -> list[Window]:
        """Return when each step began and ended; between two phases lies what is part of none, as checks are."""
        phases = {"compile": self.compile_steps, "warmup": self.warmup_steps, "steady": self.timed_steps}
        spans: list[Window] = []
        for name, steps in phases.items():
            moments = list(accumulate([self.began.get(name, 0.0), *(step.seconds for step in steps)]))
            spans.extend(zip(moments, moments[1:]))
        return spans


def fold(
    messages: Sequence[Message],
    unit: str,
    task: str,
    steps_per_epoch: int | None = None,
    peak_process_mib: float | None = None,
    power: Metered = NO_METER,
    flops: Flops | None = None,
    work: Work | None = None,
    precision: str | None = None,
    target: Target | None = None,
    ranks: Sequence[Measurement] = (),
    tasks: Sequence[Consumed] = (),
    measured_peak: MeasuredPeak | None = None,
    serving: Serving | None = None,
) -> Measurement:
    """Fold messages, in order of arrival, into a measurement."""
    steps = _steps_by_phase(messages)
    begun = _of(Phase, messages)
    untold = DeviceConditions.unknown(NOT_REPORTED)
    before, after = [*_of(DeviceConditions, messages), untold, untold][:2]
    return Measurement(
        unit=unit,
        task=task,
        phases=_phase_seconds(messages),
        began={phase.name: phase.at for phase in begun},
        waited=_last(Waited, messages),
        last_phase=begun[-1].name if begun else None,
        compile_steps=tuple(steps["compile"]),
        warmup_steps=tuple(steps["warmup"]),
        timed_steps=tuple(steps["steady"]),
        evaluations=tuple(_of(Evaluated, messages)),
        run_checks=tuple(_of(RunCheck, messages)),
        diagnosed=_last(Diagnosed, messages),
        scheduled=_last(Scheduled, messages),
        points=tuple(_of(Point, messages)),
        omitted=tuple(_of(Omitted, messages)),
        verified=tuple(_of(Verified, messages)),
        cache=_last(LastLevelCache, messages),
        steps_per_epoch=steps_per_epoch,
        device=_last(DeviceFacts, messages),
        executed=_last(Executed, messages),
        software=_last(Software, messages),
        data=_last(Data, messages),
        skipped=tuple(message.path for message in _of(Skipped, messages)),
        failure=_last(Failed, messages),
        usage=_last(Usage, messages) or Usage.unknown(NOT_REPORTED),
        conditions=before,
        conditions_after=after,
        peak_process_mib=peak_process_mib,
        power=power_of_devices(power, [rank.device for rank in ranks] or [_last(DeviceFacts, messages)]),
        flops=flops,
        work=work,
        precision=precision,
        target=target,
        placed=_last(Placed, messages),
        connected=_last(Connected, messages),
        ranks=tuple(ranks),
        tasks=tuple(tasks),
        measured_peak=measured_peak,
        serving=serving,
        engine=_last(EngineFacts, messages),
        trials=tuple(_of(Trial, messages)),
    )


def power_of_devices(metered: Metered, computed: Sequence[DeviceFacts | None]) -> Metered:
    """Return the recording of the devices that computed. If the framework names a device that the meter does not read,
    return the reason: both read the environment, each in its own way."""
    devices = [device for device in computed if device is not None]
    if isinstance(metered, Absence) or not devices:
        return metered
    source, named, simulated = metered.facts.source, metered.facts.devices, metered.facts.simulated
    if not simulated and any(device.simulated for device in devices):
        return Absence(f"what computed is a model of a device, and {source} reads real ones")
    if metered.in_use:
        return _of_those_in_use(metered, sum(device.devices for device in devices))
    whole_board = metered.facts.scope == "board"  # the meter counts everything on the board, under another name
    if simulated or whole_board:
        return metered
    identifiers = [device.identifier for device in devices if device.identifier is not None]
    unread = [each for each in identifiers if not any(_is(each, name) for name in named)]
    if not unread:
        return metered
    remedy = f": name it, --meter {source}:{unread[0]}" if len(devices) == 1 else ""
    return Absence(f"{source} read {', '.join(named)}, and {', '.join(unread)} computed{remedy}")


def _is(identifier: str, name: str) -> bool:
    """Return whether a meter's name is of the device that computed; a MIG instance is metered with its whole GPU."""
    without_domain = identifier.partition(":")[2] or identifier  # of an address, whose domain older drivers leave out
    return without_domain in name or (identifier.startswith("MIG-") and "MIG" in name)


def _of_those_in_use(recording: Recording, count: int) -> Metered:
    """Return the recording of only the devices that a process used, if the meter shows more than `count`."""
    if len(recording.in_use) == count:
        return recording
    in_use = [device for device, has in recording.in_use if has]
    if len(in_use) == count:
        return recording.only(sorted(set(in_use)))
    shown, source = len(recording.in_use), recording.facts.source
    which = f"processes had {len(in_use)}" if in_use else "it does not report which ones processes used"
    return Absence(f"{source} shows {shown} accelerators, {count} computed, and {which}: use a partition of {count}")


def _of(kind: type[M], messages: Sequence[Message]) -> list[M]:
    return [message for message in messages if isinstance(message, kind)]


def _last(kind: type[M], messages: Sequence[Message]) -> M | None:
    return next((message for message in reversed(messages) if isinstance(message, kind)), None)


def _steps_by_phase(messages: Sequence[Message]) -> dict[str, list[Step]]:
    steps: dict[str, list[Step]] = {name: [] for name in PHASES}
    phase = PHASES[0]
    for message in messages:
        if isinstance(message, Phase):
            phase = message.name
        elif isinstance(message, Step):
            steps[phase].append(message)
    return steps


def _phase_seconds(messages: Sequence[Message]) -> dict[str, float]:
    """Return each phase's length in s, less waiting, evaluations and checks: until the next, or the end of window or
    run."""
    spans: dict[str, float] = {}
    begun: Phase | None = None
    evaluating = 0.0
    for message in messages:
        if isinstance(message, (Waited, Evaluated, RunCheck, Executed, Trial)):
            evaluating += message.ended - message.began
        elif isinstance(message, (Phase, Scheduled, Ended)):
            if begun:
                spans[begun.name] = message.at - begun.at - evaluating
            begun, evaluating = message if isinstance(message, Phase) else None, 0.0
    return spans
