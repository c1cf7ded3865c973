"""Rules about states and times: phases, steps and clocks agree."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Iterator, cast

from entrypoints.contract.messages import PHASES, Step
from entrypoints.contract.statuses import STATUSES
from entrypoints.results.steadiness import FAR_OUT, FEWEST_STEPS, Drift, drift, outliers, throughput_interval
from entrypoints.rules.facts import FIRST_VERSION, RELATIVE, Document, Facts, near
from entrypoints.rules.rule import ROUNDING, differ, rule

SIGNALS = (130, 143)
# Between the last step and the end of its phase, a child reads counters; a busy host makes it wait.
PHASE_SLACK, PHASE_SHARE = 1.0, 0.05  # s, of the phase
# Marks of a device, and of a session that was opened before its phase began.
EARLY, EARLY_SHARE = 0.1, 0.01  # s, of the phase
# On the host, steps and phases are read from one clock.
SAME_CLOCK = 1e-3  # s
EXACT_PHASE = 1e-6  # s: phases of requests begin with an answer
# s that may pass between two readings of one clock: Linux lets another thread run, or reads a page from disk first. It
# refills quotas each 0.1 s.
TURN, QUOTA_PERIOD, UNKNOWN_WAIT = 0.05, 0.1, 0.3
FREEING = 0.1  # of a step: the memory of its tensors is given back when it has ended
CHECKS = 0.1  # s + of the first step: a check that has nothing to say is counted
# Before its first phase a child starts Python; after its last it closes the device, and is killed after 5 s.
OUTSIDE, OUTSIDE_SHARE, OUTSIDE_STEPS = 15.0, 0.2, 5  # s, of the run, of the first step
KERNEL_SHARE = 1e-3  # of the run: both clocks are the kernel's
TIMES_OF_DAY = 2e-3  # s, by which the difference of two may be wrong: they are rounded
CLOCK_SLACK, CLOCK_SHARE = 0.1, 0.01  # s, of the run: the wall clock is corrected while a run goes on
# Importing one of these took 1.4 s and more on the hosts that were tried.
FRAMEWORKS, IMPORT = ("pytorch", "tensorflow"), 0.05  # s
SOON, STOPPING = 2.0, 8.0  # s: signals and limits are looked at each half second, and a process has 5 s to end
PREPARED, CHECKED = 60.0, 1800.0  # s before a run: looking at data and host; the correctness check
MEANINGS = frozenset(status.meaning for name, status in STATUSES.items() if name in ("completed", "time_limit"))
ROUNDED = 1e-6
STATISTICS = 1e-6  # libraries of other systems compute a cosine with another last digit
FEW_STEPS, MANY_STEPS, SLOWER = 3, 10, 1.5  # untimed steps before the window; times the slowest timed one
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
    "`status.message` of `completed`, `time_limit`, `interrupted` and `numerics_mismatch` is the one that the program "
    "makes, and no other state has it; `out_of_memory` names the batch",
    "A message says how the run ended.",
)
def message_fits_the_state(facts: Facts) -> Iterator[str]:
    """Compare the message with those that the program makes of the state."""
    if facts.document["schema_version"] == FIRST_VERSION:
        return
    status, given = facts.document["status"], facts.document["status"]["message"]
    expected = {
        "time_limit": STATUSES["time_limit"].meaning,
        "interrupted": "stopped by SIGINT" if status["exit_code"] == 130 else "stopped by SIGTERM",
        "numerics_mismatch": facts.document["numerics"].get("reason"),
        "completed": _pursuit(facts) if facts.configuration["goal"] else STATUSES["completed"].meaning,
    }
    if facts.state in expected:
        if expected[facts.state] is not None and not given.startswith(str(expected[facts.state])):
            yield differ("status.message", given[:80], expected[facts.state], f"the state {facts.state}")
    elif given in MEANINGS or given.startswith("stopped by SIG"):
        yield f"status.message: {given!r} with the state {facts.state}"
    bounds = f"batch {facts.configuration['batch_size']}, limits of memory: "
    if (facts.state == "out_of_memory") != (bounds in given):
        yield f"status.message: a run without enough memory, and no other, names its {bounds[:-2]}"


def _pursuit(facts: Facts) -> str | None:
    """Return how the message about a target begins."""
    target = facts.document["target"]
    if target is None or not target["evaluations"]:
        return None
    aim = f"the target, {target['metric']} {target['value']:g}, was "
    if target["reached"]:
        return f"{aim}reached after {target['evaluations'][-1]['steps']} steps"
    return f"{aim}not reached in {facts.count} steps"


@rule(
    "`time_limit` needs `time_limit_seconds`, which no run exceeds; a missing device or feature ends a run before it "
    "warms up, and a compiler not before there is a model; `data_error` needs data, `non_finite` a loss "
    "that is not a number; after the window only an evaluation or a diagnosis fails",
    "A state is reached in one way.",
    "8 s over the limit, 2 s if completed: a process has 5 s to end",
)
def state_can_be_reached(facts: Facts) -> Iterator[str]:
    """Look for what each state needs."""
    given, phase, state = facts.configuration, facts.document["status"]["phase"], facts.state
    begun = PHASES.index(phase) if phase in PHASES else -1
    on_disk = given["data"] != "synthetic" or given["evaluation_path"] is not None
    evaluates = given["goal"] is not None
    impossible = {
        "no_device": begun > PHASES.index("model"),
        "unsupported": begun > PHASES.index("compile") and not evaluates,
        "compile_failure": begun < PHASES.index("model"),  # a step of any phase may be compiled again
        "data_error": not on_disk,
        "non_finite": _all_finite(facts),
        "time_limit": given["time_limit_seconds"] is None,
    }
    if impossible.get(state):
        yield f"status.state: {state} in the phase {phase} of this run"
    stopped = facts.completed or state in ("interrupted", "time_limit") or evaluates or facts.task == "sampling"
    if not stopped and facts.document["phases"]["steady"]["seconds"] is not None:
        yield f"status.state: {state} after the timed window"
    if ("count" in facts.document["accelerator"]) and begun < PHASES.index("model"):
        yield f"accelerator.count: its session was open in the phase {phase}"
    yield from _within_the_limit(facts)


def _all_finite(facts: Facts) -> bool:
    """Return whether no loss can have ended the run: the last one is a number, or there is none."""
    if facts.task == "inference" or not facts.count:
        return True
    losses = facts.steps["losses"]
    return bool(facts.task == "training" and losses and losses[-1] is not None)


def _within_the_limit(facts: Facts) -> Iterator[str]:
    """Compare the time limit, which is of all runs of a command together, with the run."""
    limit, inside = facts.configuration["time_limit_seconds"], _inside(facts)
    if limit is None or not facts.real_clock:
        return
    if inside > limit + (SOON if facts.completed else STOPPING):
        yield differ("configuration.time_limit_seconds", limit, inside, "at least the phases")
    first = facts.configuration["repeat"]["index"] == 1 and facts.document["search"] is None
    alone = first and not {"--all", "--batch-sizes"}.intersection(
        word.partition("=")[0] for word in facts.document["provenance"]["command"]
    )
    elapsed = facts.counted("elapsed_monotonic")
    if facts.state == "time_limit" and alone and elapsed is not None:
        before = CHECKED if facts.configuration["probe_numerics"] else PREPARED
        if elapsed + before < limit:
            yield differ("configuration.time_limit_seconds", limit, elapsed, "the run that reached it")


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
    return facts.target_reached or facts.count >= (facts.configuration["steps"] or 0)


@rule(
    "the second half of the untimed steps are not all slower than every timed step: not 3 or more of them by half, and "
    "not 10 or more at all, where at least as many were timed",
    "Warming up is over before the window begins: slow steps that end where it does were put there.",
)
def warmup_is_no_refuge(facts: Facts) -> Iterator[str]:
    """Compare the last untimed steps with the slowest timed one."""
    if not facts.timed or facts.seconds is None or facts.has_requests:
        return
    last = facts.seconds[facts.untimed // 2 : facts.untimed]
    if len(last) < FEW_STEPS or len(facts.timed) < len(last):
        return
    slowest = max(facts.timed) * (1.0 if len(last) >= MANY_STEPS else SLOWER)
    if min(last) > slowest:
        yield differ("steps.seconds: the last untimed ones", min(last), max(facts.timed), "at most the timed ones")


@rule(
    "each of `phases.compile`, `warmup` and `steady` lasts as long as the steps in it",
    "Phases are read from the clock, and steps from the device's own.",
    "a phase is at most 0.1 s + 1 % shorter, and 1 s + 5 % longer, without limit if it also evaluates or diagnoses; on "
    "the host all phases together 1 ms shorter, and one the wait for a processor longer; requests 1 us",
)
def phases_last_as_long_as_their_steps(facts: Facts) -> Iterator[str]:
    """Compare the steps of each phase with its seconds."""
    exact = facts.configuration["concurrency"] and facts.document["schema_version"] != FIRST_VERSION
    if exact or facts.on_host:
        yield from _phases_on_one_clock(facts, bool(exact))
    for name, steps in _steps_by_phase(facts).items():
        span = facts.document["phases"][name]["seconds"]
        if span is None:
            continue
        if steps - span > EARLY + EARLY_SHARE * steps:
            yield differ(f"phases.{name}.seconds", span, steps, "the sum of its steps")
        longer = facts.document["target"] is None and facts.task != "sampling"
        if longer and span - steps > PHASE_SLACK + PHASE_SHARE * steps:
            yield differ(f"phases.{name}.seconds", span, steps, "the sum of its steps")


def _phases_on_one_clock(facts: Facts, exact: bool) -> Iterator[str]:
    """Compare steps and phases where a step begins when the one before it ends: a phase is longer by what lies between
    its last step and its end, and the next one shorter by as much at most."""
    spans, wait = facts.document["phases"], EXACT_PHASE if exact else _longest_wait(facts)
    over = 0.0  # by how much the phases up to now are longer than their steps
    opened_before = facts.task == "sampling" or "decode_throughput" in facts.metrics  # the first step has an early mark
    for name, steps in _steps_by_phase(facts).items():
        span = spans[name]["seconds"]
        if span is None:
            return
        over += span - steps
        early = EXACT_PHASE if exact else (wait if opened_before or facts.seconds is None else SAME_CLOCK)
        if over < -early - RELATIVE * steps:
            yield differ(f"phases.{name}.seconds", span, steps, "the sum of its steps, as far as they are no phase's")
            return
        count = {"compile": 1, "warmup": facts.untimed - 1}.get(name, facts.timed_count)
        late = wait if exact else wait + FREEING * steps / max(count, 1) + _between_steps(facts, name, wait)
        if span - steps > late:
            yield differ(f"phases.{name}.seconds", span, steps, "the sum of its steps")


def _between_steps(facts: Facts, name: str, wait: float) -> float:
    """Return the seconds of a phase that checks and evaluations may add to what they measure of themselves."""
    target = facts.document["target"]
    scaled = facts.configuration["precision"] == "fp16" and name == "warmup"  # gradients that overflowed
    checks = CHECKS * (1 + facts.document["phases"]["compile"]["seconds"]) if name == "compile" or scaled else 0.0
    return checks + (wait / 4 * len(target["evaluations"]) if target else 0.0)


def _longest_wait(facts: Facts) -> float:
    """Return how long a thread may wait for a processor: a turn of each that competes with it, for its quota, and for
    what a hypervisor took."""
    waited = facts.counted("run_delay")
    if waited is None or waited >= 100:
        return UNKNOWN_WAIT
    quota = QUOTA_PERIOD if facts.counted("cpu_quota_waited") else 0.0
    return TURN * 100 / (100 - waited) + quota + min(facts.counted("cpu_stolen") or 0.0, UNKNOWN_WAIT)


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
    "not for simulated devices; phases may be 0.1 s + 1 % longer than the run, 50 ms by its own clock; 15 s + 20 % of "
    "a completed run and 5 first steps may lie outside its phases",
)
def clocks_agree(facts: Facts) -> Iterator[str]:
    """Compare wall clock and phases."""
    if not facts.real_clock:
        return
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
    compiled = facts.document["phases"]["compile"]["seconds"] or 0.0  # checks of the run take as long as a few steps
    if facts.completed and wall - inside > OUTSIDE + OUTSIDE_SHARE * wall + OUTSIDE_STEPS * compiled:
        yield differ("phases", inside, wall, "`finished` - `started`")
    imported = facts.document["phases"]["import"]["seconds"]
    if facts.configuration["framework"] in FRAMEWORKS and imported is not None and imported < IMPORT:
        yield "phases.import.seconds: no framework is imported so fast"
    yield from _elapsed(facts, wall, inside)


@rule(
    "`metrics.time_to_result` = `numerics.seconds` + `finished` - `started`",
    "They are the same measurement in other words.",
    "2 ms, since times of day are rounded",
)
def time_to_result_is_that_of_check_and_run(facts: Facts) -> Iterator[str]:
    """Add the check and the run up again."""
    given = facts.metric("time_to_result")
    started, finished = (_instant(facts.document[name]) for name in ("started", "finished"))
    if given is not None and started is not None and finished is not None:
        expected = (finished - started).total_seconds() + facts.document["numerics"].get("seconds", 0.0)
        if abs(given - expected) > TIMES_OF_DAY:
            yield differ("metrics.time_to_result", given, expected, "`numerics.seconds` + `finished` - `started`")


def _elapsed(facts: Facts, wall: float, inside: float) -> Iterator[str]:
    """Compare the clocks that were read before and after the run."""
    monotonic, kernel = facts.counted("elapsed_monotonic"), facts.counted("elapsed_kernel")
    if facts.document["schema_version"] != FIRST_VERSION and facts.count and monotonic is None:
        yield "conditions_after.elapsed_monotonic: every system has this clock"
    if monotonic is not None and facts.count:
        if inside > monotonic + TURN:
            yield differ("phases", inside, monotonic, "conditions_after.elapsed_monotonic")
        if kernel is not None and abs(kernel - monotonic) > CLOCK_SLACK + KERNEL_SHARE * monotonic:
            yield differ("conditions_after.elapsed_kernel", kernel, monotonic, "conditions_after.elapsed_monotonic")
    for name, elapsed in (("elapsed_monotonic", monotonic), ("elapsed_kernel", kernel)):
        if elapsed is not None and facts.count and abs(elapsed - wall) > CLOCK_SLACK + CLOCK_SHARE * wall:
            yield differ(f"conditions_after.{name}", elapsed, wall, "`finished` - `started`")


def _inside(facts: Facts) -> float:
    """Return the seconds of phases, evaluations, trials of rates and the rest before the run, less imports in it."""
    phases = math.fsum(span["seconds"] or 0.0 for span in facts.document["phases"].values())
    target, power = facts.document["target"], facts.document["power"]
    evaluations = math.fsum(each["seconds"] for each in target["evaluations"]) if target else 0.0
    evaluations += math.fsum(each["seconds"] for each in facts.document.get("serving", {}).get("trials", ()))
    idle = power.get("idle", {"duration": {"value": 0.0}})
    return phases + evaluations + (idle["duration"]["value"] or 0.0) - idle.get("importing", {"value": 0.0})["value"]


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
        interval = throughput_interval(cast("list[Step]", [_Step(second, facts.per_step) for second in timed]))
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
    yield from _enough_steps(facts)
    far = given["outliers"]
    if far is not None and facts.timed_count > 0 and not near(far["share_of_steps"], far["count"] / facts.timed_count):
        yield differ("steadiness.outliers.share_of_steps", far["share_of_steps"], far["count"], "the count")


def _enough_steps(facts: Facts) -> Iterator[str]:
    """Look for numbers of too few steps, and for an interval and outliers that the quantiles exclude."""
    given, quantiles = facts.document["steadiness"], facts.steps["quantiles"]
    around, far = given["throughput_interval"], given["outliers"]
    for name in ("drift_interval", "throughput_interval"):
        if given[name]["low"] is not None and facts.timed_count < FEWEST_STEPS:
            yield f"steadiness.{name}: {facts.timed_count} timed steps do not show it"
    if quantiles is None or facts.timed is not None:
        return  # listed steps are compared as such
    if around["low"] is not None and around["low"] == around["high"] and quantiles["p0"] < quantiles["p100"]:
        yield "steadiness.throughput_interval: steps that differ leave one"
    reach = FAR_OUT * (quantiles["p75"] - quantiles["p25"])
    low, high = quantiles["p25"] - reach, quantiles["p75"] + reach
    if far is None or bool(far["count"]) != (quantiles["p0"] < low or quantiles["p100"] > high):
        yield f"steadiness.outliers.count: steps beyond {low!r} to {high!r} are outliers"
        return
    window = facts.window or 0.0
    least = high if quantiles["p0"] >= low else quantiles["p0"]
    if not near(window, 0) and not (
        least * far["count"] <= window * far["share_of_time"] * (1 + ROUNDED)
        and window * far["share_of_time"] <= quantiles["p100"] * far["count"] * (1 + ROUNDED)
    ):
        yield f"steadiness.outliers.share_of_time: {far['share_of_time']!r} of {far['count']} outliers"


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
