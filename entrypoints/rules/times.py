"""Rules about states and times: phases, steps and clocks agree."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Iterator

from entrypoints.contract.messages import PHASES
from entrypoints.contract.statuses import STATUSES
from entrypoints.results.steadiness import FEWEST_STEPS, Drift, drift, outliers, throughput_interval
from entrypoints.rules.facts import Document, Facts, is_number, near
from entrypoints.rules.rule import ROUNDING, differ, rule

SIGNALS = (130, 143)
# Between the last step and the end of its phase, a child reads counters; a busy host makes it wait.
PHASE_SLACK, PHASE_SHARE = 1.0, 0.05  # s, of the phase
# Marks of a device, and of a session that was opened before its phase began.
EARLY, EARLY_SHARE = 0.1, 0.01  # s, of the phase
# Before its first phase a child starts Python; after its last it closes the device, and is killed after 5 s.
OUTSIDE, OUTSIDE_SHARE = 30.0, 0.2  # s, of the run
CLOCK_SLACK, CLOCK_SHARE = 0.1, 0.01  # s, of the run: the wall clock is corrected while a run goes on
STATISTICS = 1e-6  # libraries of other systems compute a cosine with another last digit
FUTURE = timedelta(days=1)  # clocks of hosts differ


class _Step:
    """A timed step as the throughput's interval sees it."""

    __slots__ = ("seconds", "units")

    def __init__(self, seconds: float, units: int) -> None:
        self.seconds, self.units = seconds, units


@rule(
    "`status.exit_code` is that of `status.state`; a completed run was in `steady`; `numerics_mismatch` needs a failed "
    "check, and no run completes with one",
    "A state means what the table of exit codes says.",
)
def state_fits_the_exit_code(facts: Facts) -> Iterator[str]:
    """Compare state, exit code, phase and correctness check."""
    status, numerics = facts.document["status"], facts.document["numerics"]["state"]
    code = status["exit_code"]
    fits = code in SIGNALS if facts.state == "interrupted" else code == STATUSES[facts.state].exit_code
    if not fits:
        yield differ("status.exit_code", code, STATUSES[facts.state].exit_code, f"the state {facts.state}")
    if facts.completed and status["phase"] != PHASES[-1]:
        yield differ("status.phase", status["phase"], PHASES[-1], f"the state {facts.state}")
    if facts.completed and (numerics == "failed") != (facts.state == "numerics_mismatch"):
        yield f"status.state: {facts.state} with a correctness check that has the state {numerics}"


@rule(
    "phases that finished are those before `status.phase`, and, completed, all; one that failed after the "
    "last step asked for may have finished `steady`; steps need the phase that they are in",
    "Phases follow each other.",
)
def phases_follow_each_other(facts: Facts) -> Iterator[str]:
    """Compare the finished phases with the last one that began."""
    spans, last = facts.document["phases"], facts.document["status"]["phase"]
    begun = PHASES.index(last) if last in PHASES else -1
    for number, name in enumerate(PHASES):
        finished = spans[name]["seconds"] is not None
        either = name == last == PHASES[-1] and not facts.completed and _window_ended(facts)
        if not either and finished != (facts.completed or number < begun):
            yield f"phases.{name}.seconds: the state is {facts.state} and the last phase that began {last}"
    if facts.count and begun < PHASES.index("compile"):
        yield differ("steps.count", facts.count, 0, f"the phase {last}")
    if facts.timed_count > 0 and begun < PHASES.index("steady"):
        yield differ("steps.untimed", facts.untimed, facts.count, f"the phase {last}")


def _window_ended(facts: Facts) -> bool:
    """Return whether the timed window may have ended: it is followed by an evaluation or a diagnosis."""
    return facts.target_reached or facts.configuration["steps"] in (None, facts.count)


@rule(
    "each of `phases.compile`, `warmup` and `steady` lasts as long as the steps in it",
    "Phases are read from the clock, and steps from the device's own.",
    "a phase is at most 0.1 s + 1 % shorter, and 1 s + 5 % longer, without limit if it also evaluates or diagnoses",
)
def phases_last_as_long_as_their_steps(facts: Facts) -> Iterator[str]:
    """Compare the steps of each phase with its seconds."""
    for name, steps in _steps_by_phase(facts).items():
        span = facts.document["phases"][name]["seconds"]
        if span is None:
            continue
        if steps - span > EARLY + EARLY_SHARE * steps:
            yield differ(f"phases.{name}.seconds", span, steps, "the sum of its steps")
        longer = facts.document["target"] is None and facts.task != "sampling"
        if longer and span - steps > PHASE_SLACK + PHASE_SHARE * steps:
            yield differ(f"phases.{name}.seconds", span, steps, "the sum of its steps")


def _steps_by_phase(facts: Facts) -> dict[str, float]:
    """Return the seconds of the steps of each phase; without a list of steps only those of the timed window."""
    if facts.seconds is None:
        return {} if facts.window is None else {"steady": facts.window}
    untimed = facts.untimed
    return {
        "compile": sum(facts.seconds[: min(1, untimed)]),
        "warmup": sum(facts.seconds[1:untimed]),
        "steady": sum(facts.seconds[untimed:]),
    }


@rule(
    "`started` <= `finished`, which is not in the future; between them lie the phases, the evaluations and the rest, "
    "and, completed, little else; `conditions_after.elapsed_monotonic` = `elapsed_kernel` = `finished` - `started`",
    "The wall clock and the clock of the steps are different ones: one of them alone is easily made to run slower.",
    "not for simulated devices; phases may be 0.1 s + 1 % longer than the run; 30 s + 20 % of a completed run may lie "
    "outside its phases",
)
def clocks_agree(facts: Facts) -> Iterator[str]:
    """Compare wall clock and phases."""
    if facts.document["provenance"]["simulated"]:
        return  # the clock of a model of a device is not the host's
    started, finished = (_instant(facts.document[name]) for name in ("started", "finished"))
    if started is None or finished is None:
        yield "started: it is not a time"
        return
    if finished < started:
        yield differ("finished", facts.document["finished"], facts.document["started"], "at least `started`")
        return
    if finished > datetime.now(timezone.utc) + FUTURE:
        yield f"finished: {facts.document['finished']} is in the future"
    wall, inside = (finished - started).total_seconds(), _inside(facts)
    if inside > wall + CLOCK_SLACK + CLOCK_SHARE * wall:
        yield differ("phases", inside, wall, "`finished` - `started`")
    if facts.completed and wall - inside > OUTSIDE + OUTSIDE_SHARE * wall:
        yield differ("phases", inside, wall, "`finished` - `started`")
    for name in ("elapsed_monotonic", "elapsed_kernel"):
        elapsed = facts.document["conditions_after"].get(name, {}).get("value")  # schema 1.0 has none
        if is_number(elapsed) and facts.count and abs(elapsed - wall) > CLOCK_SLACK + CLOCK_SHARE * wall:
            yield differ(f"conditions_after.{name}", elapsed, wall, "`finished` - `started`")


def _inside(facts: Facts) -> float:
    """Return the seconds of phases, evaluations and the rest before the run."""
    phases = math.fsum(span["seconds"] or 0.0 for span in facts.document["phases"].values())
    target, power = facts.document["target"], facts.document["power"]
    evaluations = math.fsum(each["seconds"] for each in target["evaluations"]) if target else 0.0
    return phases + evaluations + (power["idle"]["duration"]["value"] or 0.0 if "idle" in power else 0.0)


@rule(
    "`steadiness` is computed from the timed steps: drift and its interval, the interval of the throughput, outliers",
    "Whether a number is steady decides whether it is published.",
    "1e-6 of a number",
)
def steadiness_is_that_of_the_steps(facts: Facts) -> Iterator[str]:
    """Compute the drift, the interval and the outliers again."""
    given, timed = facts.document["steadiness"], facts.timed
    if timed is None:
        return
    yield from _differences(given["outliers"], outliers(timed) if timed else None, "steadiness.outliers")
    enough = given["drift"]["value"] is not None
    if enough and len(timed) < FEWEST_STEPS:
        yield f"steadiness.drift: {len(timed)} timed steps do not show one"
    elif enough:
        computed = drift(timed)
        interval = throughput_interval([_Step(second, facts.per_step) for second in timed])
        yield from _differences(
            {"drift": given["drift"]["value"], **_bounds(given["drift_interval"], "drift")},
            {"drift": computed.change, "drift_low": computed.low, "drift_high": computed.high},
            "steadiness",
        )
        yield from _differences(
            _bounds(given["throughput_interval"], "throughput"),
            {"throughput_low": interval[0], "throughput_high": interval[1]},
            "steadiness",
        )


@rule(
    "`steadiness.steady` follows from the drift and its interval; every interval includes its number",
    "An interval that excludes its own number is not one.",
    ROUNDING,
)
def steadiness_follows_from_its_numbers(facts: Facts) -> Iterator[str]:
    """Decide on steadiness again, and look for each number in its interval."""
    given = facts.document["steadiness"]
    change, around = given["drift"]["value"], given["drift_interval"]
    low, high = around["low"], around["high"]
    if change is None or low is None or high is None:
        if given["steady"] is not None:
            yield "steadiness.steady: nothing is steady without a drift and its interval"
    else:
        steady = Drift(change, low, high).steady
        if given["steady"] is not steady:
            yield differ("steadiness.steady", given["steady"], steady, "its drift and interval")
        yield from _inside_of(change, around, "steadiness.drift_interval")
    throughput = facts.metric("throughput")
    if throughput is not None:
        yield from _inside_of(throughput, given["throughput_interval"], "steadiness.throughput_interval")
    far = given["outliers"]
    if far is not None and facts.timed_count > 0 and not near(far["share_of_steps"], far["count"] / facts.timed_count):
        yield differ("steadiness.outliers.share_of_steps", far["share_of_steps"], far["count"], "the count")


def _inside_of(value: float, interval: Document, field: str) -> Iterator[str]:
    low, high = interval["low"], interval["high"]
    if low is not None and high is not None and not (low <= value <= high or near(value, low) or near(value, high)):
        yield f"{field}: {low!r} to {high!r} excludes {value!r}"


def _bounds(interval: Document, name: str) -> Document:
    return {f"{name}_low": interval["low"], f"{name}_high": interval["high"]}


def _differences(given: Document | None, expected: Document | None, field: str) -> Iterator[str]:
    """Yield the numbers of a part that differ from computed ones."""
    if given is None or expected is None:
        if given is not expected:
            yield f"{field}: it is there exactly if there are timed steps"
        return
    for name, value in expected.items():
        if given[name] is None or not near(given[name], value, STATISTICS):
            yield differ(f"{field}.{name}", given[name], value, "steps.seconds")


def _instant(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(f"{text[:-1]}+00:00")  # Python 3.8 reads no Z
    except ValueError:
        return None
