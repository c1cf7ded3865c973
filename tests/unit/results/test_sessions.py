"""Verdicts from sessions: what repeats of one day, of several days, and of sides that took turns, can show."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

import pytest

from sifmark.results.comparison.compare import Comparison, compare_observations
from sifmark.results.comparison.compatibility import EXCLUSIONS
from sifmark.results.comparison.gate import Gate, GateDecision
from sifmark.results.comparison.intervals import Ratio
from sifmark.results.comparison.observation import ComparisonGroup, Observation, Session
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.sessions import ONE_SESSION
from sifmark.results.documents import MetricValue

METRIC, BATCH = "throughput", "configuration.batch_size"
GROUP = ComparisonGroup("sha256:0", "training", "steady", "synthetic")
FIELDS: dict[str, object] = {"schema_version": "1.1"}
FIELDS |= {name: rule.only[0] if rule.only else None for name, rule in EXCLUSIONS.items()}
NUMBER = count()
TIGHT = (0.999, 1.0, 1.001)


def side(
    name: str, sessions: Mapping[str, Sequence[float]], host: str = "n01", minutes: range = range(60), batch: int = 8
) -> list[Observation]:
    """Repeats by day; in each day they start at these minutes."""
    return [
        Observation(
            side=name,
            file=f"{next(NUMBER)}.json",
            id=str(next(NUMBER)),
            title="simulated",
            group=GROUP,
            fields={**FIELDS, BATCH: batch},
            numbers={METRIC: MetricValue(value, "images/s", None)},
            session=Session(host, day=day),
            started=f"{day}T12:{minute:02}:00Z",
            host=host,
        )
        for day, values in sessions.items()
        for minute, value in zip(minutes, values, strict=False)
    ]


def compared(ours: list[Observation], theirs: list[Observation], **asked: object) -> Comparison:
    return compare_observations([*ours, *theirs], Query((METRIC,), against=True, **asked))  # type: ignore[arg-type]


def ratio_of(ours: list[Observation], theirs: list[Observation], **asked: object) -> Ratio:
    (row,) = compared(ours, theirs, **asked).compared
    return row.ratios[METRIC]


def times(factor: float, values: Sequence[float] = TIGHT) -> list[float]:
    return [factor * value for value in values]


@pytest.mark.parametrize(("factor", "between", "verdict"), [
    (1.1, 0.01, "more"), (1 / 1.1, 0.01, "less"), (1.015, 0.01, "cannot tell"), (1.015, 0.0, "more"),
    (1.1, 0.05, "cannot tell"), (1.0005, 0.01, "no difference shown"),
])  # fmt: skip
def test_one_session_a_side_does_not_show_how_sessions_differ(factor: float, between: float, verdict: str) -> None:
    ratio = ratio_of(
        side("results", {"2026-11-02": times(factor)}), side("against", {"2026-11-01": TIGHT}), between=between
    )
    assert (ratio.verdict, ratio.scope) == (verdict, ONE_SESSION)
    assert ratio.doubt == (ONE_SESSION if verdict == "cannot tell" else "")
    # What is shown is what was measured: the interval within the sessions.
    assert ratio.low is not None and ratio.high is not None and ratio.high / ratio.low < 1.01


def test_taking_turns_takes_out_what_moves_a_session() -> None:
    ours = side("results", {"2026-11-01": times(1.015)}, minutes=range(1, 60, 2))
    theirs = side("against", {"2026-11-01": TIGHT}, minutes=range(0, 60, 2))
    assert ratio_of(ours, theirs).verdict == "more"
    afterwards = side("results", {"2026-11-01": times(1.015)}, minutes=range(30, 60))
    assert ratio_of(afterwards, theirs).verdict == "cannot tell"


def test_with_several_sessions_they_are_the_sample() -> None:
    days = [f"2026-11-{day:02}" for day in range(1, 6)]
    wide: dict[str, Sequence[float]] = dict(zip(days, ([x] * 3 for x in (0.95, 1.0, 1.05, 0.97, 1.03)), strict=True))
    narrow: dict[str, Sequence[float]] = dict.fromkeys(days, TIGHT)
    later = {day.replace("-11-", "-12-"): values for day, values in narrow.items()}
    ours = side("results", {day: times(1.015) for day in later})
    assert ratio_of(ours, side("against", narrow)).verdict == "more"
    assert ratio_of(ours, side("against", wide)).verdict == "no difference shown"
    # In the same sessions, in turns, only their differences count.
    turns = side("results", {day: times(1.015, wide[day]) for day in days}, minutes=range(1, 60, 2))
    assert ratio_of(turns, side("against", wide, minutes=range(0, 60, 2))).verdict == "more"


@pytest.mark.parametrize(("host", "spread", "verdict"), [
    ("n01", 0.0005, "less"), ("n01", 0.05, "cannot tell"), ("n02", 0.0005, "cannot tell"),
])  # fmt: skip
def test_one_night_is_judged_by_the_history_of_its_own_machine(host: str, spread: float, verdict: str) -> None:
    nights = {f"2026-11-{day:02}": times(1 + spread * (day - 3)) for day in range(1, 6)}
    tonight = side("results", {"2026-11-06": times(0.985)}, host=host)
    verdicts = {verdict, "no difference shown"} if verdict == "cannot tell" else {verdict}
    assert ratio_of(tonight, side("against", nights)).verdict in verdicts


@pytest.mark.parametrize("mark", ["busy", "stopped", "unsteady"])
@pytest.mark.parametrize("marked", ["results", "against"])
def test_a_mark_on_either_side_withholds_the_verdict(mark: str, marked: str) -> None:
    both = side("results", {"2026-11-02": times(2)}), side("against", {"2026-11-01": TIGHT})
    ours, theirs = (
        [replace(each, marks=frozenset({mark})) if each.side == marked else each for each in s] for s in both
    )
    comparison = compared(ours, theirs)
    ratio = comparison.compared[0].ratios[METRIC]
    assert ratio.verdict == "cannot tell" and ratio.doubt
    assert Gate(0.9).judge(comparison).decision is GateDecision.UNDECIDED
    allowed = compared(ours, theirs, allowed=frozenset({mark}))
    assert allowed.compared[0].ratios[METRIC].verdict == "more" and Gate(0.9).judge(allowed).passed


def test_of_many_rows_without_a_difference_few_gates_fail() -> None:
    """50 rows at the limit: without a correction 64 % of such gates failed."""
    draw, gates, rows = random.Random(56), 60, 50
    failed = 0
    for _ in range(gates):
        sides = (
            side(
                name,
                {"2026-11-01": [draw.gauss(1, 0.01) for _ in range(5)]},
                minutes=minutes,
                batch=row,
            )
            for row in range(rows)
            for name, minutes in (("results", range(1, 60, 2)), ("against", range(0, 60, 2)))
        )
        comparison = compare_observations([each for s in sides for each in s], Query((METRIC,), against=True))
        assert len(comparison.compared) == rows
        failed += Gate(1.0).judge(comparison).decision is GateDecision.FAILED
    assert failed <= 6  # 1.5 are expected at a rate of 2.5 %; more than 6 in one of 1,000 tests


def test_a_baseline_that_nothing_was_compared_with_keeps_a_gate_from_passing() -> None:
    ours, theirs = side("results", {"2026-11-02": TIGHT}), side("against", {"2026-11-01": TIGHT})
    vanished = side("against", {"2026-11-01": TIGHT}, batch=64)
    comparison = compared(ours, [*theirs, *vanished])
    assert Gate(0.5).judge(comparison).decision is GateDecision.UNDECIDED
    assert [row.fields[BATCH] for row in comparison.unmatched_baselines] == [64]
    assert Gate(0.5).judge(comparison, allow_missing=True).passed


def test_false_verdicts_over_days_and_in_a_drift() -> None:
    """Another day (spread 1 %, 0.3 % within it), and all of one side before the other while the host drifts by 2 %."""
    draw, trials = random.Random(5), 300
    other_day = drifting = 0
    for _ in range(trials):
        days = [1 + draw.gauss(0, 0.01) for _ in range(2)]
        first, second = ([day * (1 + draw.gauss(0, 0.003)) for _ in range(5)] for day in days)
        other_day += ratio_of(
            side("results", {"2026-11-02": first}), side("against", {"2026-11-01": second})
        ).verdict in ("more", "less")
        runs = [(1 + 0.02 * place / 9) * (1 + draw.gauss(0, 0.005)) for place in range(10)]
        theirs, ours = (side(name, {"2026-11-01": values}, minutes=minutes) for name, values, minutes in (
            ("against", runs[:5], range(5)), ("results", runs[5:], range(5, 10))))  # fmt: skip
        drifting += ratio_of(ours, theirs).verdict in ("more", "less")
    assert other_day <= 0.06 * trials + 12 and drifting <= 0.06 * trials + 12  # three standard errors above 6 %
