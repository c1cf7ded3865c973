"""The words of a report: its headline, and what each workload shows.

Every statement follows from intervals of `compare`, by these rules.

- The leader of a workload is the system that is better than every other one in a configuration that all have.
- The headline names leaders: one that leads everywhere, or who leads what; without any it says so.
- The message of a workload is the first that applies: two curves cross; memory ends one curve before the others; the
  last doubling of the load gains less than 5 % on every system; the leader; no difference.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sifmark.core.console import counted
from sifmark.report.describe import factor_text, failure_text, listed, quantity_text, short
from sifmark.report.results import Point, ReportResults
from sifmark.report.scorecard import better_above_one
from sifmark.report.workloads import BETTER, SAME, WORSE, Workload, judged, ranked
from sifmark.results.catalogue import column_of
from sifmark.results.comparison.intervals import Ratio
from sifmark.results.numbers import format_interval

LITTLE = 1.05  # gain of a doubling below which more load gains not much
_OUT_OF_MEMORY = "out_of_memory"
_MOST_TITLES = 3  # workloads that a headline names
_MOST_SYSTEMS = 4  # that the text below it names


@dataclass(frozen=True)
class Words:
    """What stands above the scorecard."""

    headline: str
    sentences: tuple[str, ...]


def words_of(results: ReportResults, workloads: Iterable[Workload], title: str) -> Words:
    """Return the headline and the sentences below it. `title` is what the report is called."""
    every = ranked(workloads)
    compared = [each for each in every if each.contest]
    alone = results.reference_name and len(results.systems) == 1
    headline = title
    if compared:
        headline = _against(results, compared) if alone else _headline(compared)
    sentences = [*([_ratios(results, compared)] if compared else _best(every)), _other_by(every), _failures(results)]
    return Words(headline, tuple(filter(None, sentences)))


def _headline(workloads: Sequence[Workload]) -> str:
    leaders: dict[str, list[Workload]] = defaultdict(list)
    for workload in workloads:
        if workload.leader:
            leaders[workload.leader.system].append(workload)
    if not leaders:
        return "No system is shown to be ahead"
    if len(leaders) == 1:
        (name, led), *_ = leaders.items()
        if len(led) == len(workloads):
            return f"{short(name)} is ahead" if len(workloads) == 1 else f"{short(name)} is ahead everywhere"
    parts: list[str] = []
    for name, led in sorted(leaders.items(), key=lambda item: -len(item[1])):
        parts.append(f"{short(name)} {'is ahead ' if not parts else ''}on {_titles(led, workloads)}")
    return ", ".join(parts[:_MOST_SYSTEMS])


def _against(results: ReportResults, workloads: Sequence[Workload]) -> str:
    name, other = short(results.systems[0]), short(results.reference_name)
    by_verdict: dict[str, list[Workload]] = defaultdict(list)
    for workload in workloads:
        for point in workload.contest.points.values() if workload.contest else ():
            if point.ratio:
                by_verdict[judged(point.ratio, point.metric)].append(workload)
    parts = [
        (word, _titles(by_verdict[verdict], workloads), len(by_verdict[verdict]))
        for verdict, word in ((BETTER, "ahead"), (WORSE, "behind"))
        if by_verdict[verdict]
    ]
    if not parts:
        return f"No difference between {name} and {other} is shown"
    texts = [word if count == len(workloads) else f"{word} on {titles}" for word, titles, count in parts]
    return f"{name} is {', '.join(texts)}, compared with {other}"


def _titles(led: Sequence[Workload], workloads: Sequence[Workload]) -> str:
    """Return workloads by name; with the kind of run where another kind of the same has another leader or none."""
    names = []
    for title in dict.fromkeys(each.title for each in led):
        own = [each for each in led if each.title == title]
        every = [each for each in workloads if each.title == title]
        names += [_plain(title)] if len(own) == len(every) else [f"{_plain(title)} {each.task}" for each in own]
    if len(names) > _MOST_TITLES:
        return f"{len(led)} of {len(workloads)} workloads"
    return listed(names)


def _plain(title: str) -> str:
    """Return the title of a workload without what stands in parentheses."""
    return short(title.partition(" (")[0])


def _ratios(results: ReportResults, workloads: Sequence[Workload]) -> str:
    """Return by system how its rates compare with the baseline's; nothing where no ratio has an interval."""
    ratios: dict[str, list[Ratio]] = defaultdict(list)
    for workload in workloads:
        for name, point in workload.contest.points.items() if workload.contest else ():
            if point.ratio and point.ratio.value and point.ratio.low is not None:
                ratios[name].append(better_above_one(point.ratio, point.metric))
    named = [name for name in results.systems if name in ratios]
    if not named:
        return ""
    where = "On" if len(workloads) == 1 else f"Over {len(workloads)} workloads, on"
    if len(named) > _MOST_SYSTEMS:
        parts = [f"{len(named)} systems have {_range([each for name in named for each in ratios[name]])}"]
    else:
        parts = [f"{short(name)} has {_range(ratios[name])}" for name in named]
    return f"{where} as many devices, {listed(parts)} times the throughput of {short(results.divisor)}."


def _range(ratios: Sequence[Ratio]) -> str:
    """Return the lowest and the highest of some ratios; a single one with its interval."""
    if len(ratios) == 1:
        (ratio,) = ratios
        return format_interval(ratio.value or 1.0, ratio.low, ratio.high)
    values = [ratio.value or 1.0 for ratio in ratios]
    low, high = factor_text(min(values)), factor_text(max(values))
    return low if low == high else f"{low} to {high}"


def _best(workloads: Sequence[Workload]) -> list[str]:
    """Return the best of each workload, where nothing is compared."""
    texts = [
        f"{_plain(workload.title)}, {workload.task}: {short(name)} {quantity_text(point.mean, point.unit)}"
        for workload in workloads
        for name, point in list(workload.best.items())[:_MOST_SYSTEMS]
    ]
    return [f"{'; '.join(texts[:_MOST_SYSTEMS])}."] if texts else []


def _other_by(workloads: Sequence[Workload]) -> str:
    """Return how to compare the loads of a system that is the only one; nothing where systems are compared."""
    loads = {each.load: each for each in workloads if len(each.ran) == 1 and len(*each.ran.values()) > 1}
    if not loads or any(each.results.divisor or len(each.results.systems) > 1 for each in workloads):
        return ""
    return f"To compare {' or '.join(f'by {each.load_name}: --by {column_of(load)}' for load, each in loads.items())}."


def _failures(results: ReportResults) -> str:
    states = Counter(failure_text(each) for each in results.failures)
    if not states:
        return ""
    parts = [f"{count} {state}" for state, count in states.most_common()]
    total = counted(len(results.members), "run")
    count = len(results.failures)
    return f"{count} of {total} {'is' if count == 1 else 'are'} no measurement: {listed(parts)}."


def message_of(workload: Workload) -> str:
    """Return what a workload shows, in a sentence without a full stop."""
    rules = (_crossing, _first_out_of_memory, _saturation, _leader, _even)
    return next((text for rule in rules if (text := rule(workload))), _measured(workload))


def _verdicts(workload: Workload) -> dict[str, list[tuple[int, str]]]:
    """Return by system what `compare` says of it at each load that it shares with the baseline."""
    verdicts: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for shared in workload.shared(workload.rate):
        load = workload.load_of(shared.baseline.fields)
        for name, point in shared.points.items():
            if load and point.ratio:
                verdicts[name].append((load, judged(point.ratio, point.metric)))
    return {name: sorted(each) for name, each in verdicts.items()}


def _crossing(workload: Workload) -> str:
    """Return which of two systems is ahead from some load on, behind below it; no verdict may contradict that."""
    divisor = short(workload.results.divisor)
    for name, verdicts in _verdicts(workload).items():
        if len({load for load, _ in verdicts}) < len(verdicts):
            continue  # several variants at one load: no single curve
        judgements = [verdict for _, verdict in verdicts]
        for winner, other, first in ((short(name), divisor, BETTER), (divisor, short(name), WORSE)):
            last = WORSE if first == BETTER else BETTER
            if first not in judgements or last not in judgements:
                continue
            start = judgements.index(first)
            if set(judgements[start:]) == {first} and first not in judgements[:start]:
                return f"{winner} is ahead of {other} from {workload.load_text(verdicts[start][0])} on"
    return ""


def _first_out_of_memory(workload: Workload) -> str:
    """Return which system runs out of memory at a load at which each other one still ran."""
    lost = {
        name: next((load for load, failure in each.items() if failure.state == _OUT_OF_MEMORY), 0)
        for name, each in workload.lost.items()
    }
    ends = {name: load for name, load in lost.items() if load > max(workload.ran.get(name, {}), default=0)}
    if not ends:
        return ""
    first = min(ends, key=lambda name: ends[name])
    others = [max(loads) for name, loads in workload.ran.items() if name != first]
    if not others or min(others) < ends[first]:
        return ""
    return f"{short(first)} runs out of memory first, at {workload.load_text(ends[first])}"


def _saturation(workload: Workload) -> str:
    """Return beyond which load no system gains 5 % by more of it, and who leads, if that is shown."""
    knees = []
    for points in workload.ran.values():
        if any(len(each) > 1 for each in points.values()):
            return ""  # several variants at one load: no single curve
        loads = list(points)
        flat = (
            load
            for place, load in enumerate(loads[:-1])
            if all(_gains_little(points[load][0], points[more][0]) for more in loads[place + 1 :])
        )
        if (knee := next(flat, 0)) == 0:
            return ""
        knees.append(knee)
    if not knees:
        return ""
    ahead, beyond = _leader(workload), workload.load_text(max(knees))
    text = f"beyond {beyond} {'no system gains' if len(knees) > 1 else 'it gains less than'} 5 %"
    return f"{ahead}; {text}" if ahead else text


def _gains_little(point: Point, more: Point) -> bool:
    """Return whether the whole interval of a point is less than 5 % above that of another."""
    low, high = point.mean.low, more.mean.high
    return low is not None and high is not None and high < low * LITTLE


def _leader(workload: Workload) -> str:
    if workload.leader is None:
        return ""
    name = workload.leader.system
    verdicts = _verdicts(workload)
    loads = {load for each in verdicts.values() for load, _ in each}
    divisor = workload.results.divisor
    if len(loads) > 1:
        wanted = {other: WORSE if name == divisor else BETTER for other in verdicts if name in (divisor, other)}
        if wanted and all({verdict for _, verdict in verdicts[other]} == {wanted[other]} for other in wanted):
            against = "" if name == divisor or len(workload.best) == 2 else f" of {short(divisor)}"
            return f"{short(name)} is ahead{against} at every {workload.load_name}"
    load = workload.leader.shared.baseline.fields.get(workload.load)
    return f"{short(name)} is ahead" + (
        f" at {workload.load_text(load)}" if isinstance(load, int) and len(loads) > 1 else ""
    )


def _even(workload: Workload) -> str:
    if workload.contest is None:
        return ""
    verdicts = {judged(each.ratio, each.metric) for each in workload.contest.points.values() if each.ratio}
    return "No difference is shown" if verdicts == {SAME} else "No system is shown to be ahead"


def _measured(workload: Workload) -> str:
    if not workload.best:
        return "No result is a measurement"
    name, point = max(workload.best.items(), key=lambda item: item[1].value)
    where = f"{short(name)} reaches " if len(workload.best) > 1 else ""
    text = f"{where}{quantity_text(point.mean, point.unit)}"
    load = workload.load_of(point.fields)
    return f"{text} at {workload.load_text(load)}" if load else text
