"""The compare verb: results in groups, against a baseline, and a gate for pipelines."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sifmark.core.console import output, printable, status
from sifmark.core.errors import SifmarkError, UsageError, unknown_name
from sifmark.results.comparison import Comparison, Query, compare_observations
from sifmark.results.compatibility import FIELDS, format_value, unit_field
from sifmark.results.intervals import Ratio
from sifmark.results.load import load_results
from sifmark.results.observation import (
    EVALUATED,
    PLATFORM,
    SETTING,
    Observation,
    has_path,
    metric_value,
    metrics_of,
    observe,
)
from sifmark.results.tables import FORMATS, exclusion_text, incompatibility_text

DEFAULT_METRICS = ["throughput", "step_time_p50", "peak_process_memory"]
ALL = "all"
MAX_LISTED = 20  # by name, of what is left out for one reason
EXIT_NOT_COMPARABLE = "select what compares, repair what is not valid (inv validate), or override with --allow FIELD"
EXIT_INCONCLUSIVE = (
    "measure again, with more repeats on both sides: --repeat 3 or more; the notes above say what was left out"
)
COSTS = ("s", "J", "W", "MiB")  # units of what is better when it is less, also of each image and the like
RATES = ("/s", "/W", "/Wh")


class GateError(SifmarkError):
    """The gate was asked, and the answer is no. The exit code is 7."""

    exit_code = 7


@dataclass(frozen=True)
class Gate:
    """A ratio to the baseline that no line may be below, or above."""

    ratio: float
    above: bool

    @property
    def side(self) -> str:
        """Where nothing may be."""
        return "above" if self.above else "below"

    @property
    def option(self) -> str:
        """By which it was asked for."""
        return f"--fail-{self.side}"

    def kept(self, found: Ratio | None) -> bool | None:
        """Whether a whole interval lies on the right side; None where it lies on both, or there is none."""
        if found is None or found.low is None or found.high is None:
            return None
        right = {bound <= self.ratio if self.above else bound >= self.ratio for bound in (found.low, found.high)}
        return right.pop() if len(right) == 1 else None


@dataclass
class LoadedObservations:
    """Results of one or two paths, each counted once."""

    observations: list[Observation] = field(default_factory=list)
    metrics: set[str] = field(default_factory=set)  # that any result has, in whatever number
    fields: set[str] = field(default_factory=set)  # of those asked for, what any result has, null too
    unread: list[str] = field(default_factory=list)
    doubled: int = 0


def compare_results(
    path: str,
    against: str = "",
    baseline: str = "",
    metrics: str = "",
    by: str = "",
    allow: Sequence[str] = (),
    form: str = "table",
    fail_below: str = "",
    fail_above: str = "",
) -> None:
    """Print the comparison. Raises SifmarkError where something did not compare, GateError where the gate fails."""
    write = FORMATS.get(form)
    if write is None:
        raise unknown_name("format", form, FORMATS)
    gate = _gate(fail_below, fail_above)
    chosen = _baseline(baseline, against)
    if gate is not None and not against and chosen is None:
        raise UsageError(f"{gate.option} needs a baseline", "add --against PATH or --baseline FIELD=VALUE")
    wanted = None if metrics == ALL else _words(metrics) if metrics else DEFAULT_METRICS
    named = _words(by) + ([chosen[0]] if chosen else [])
    loaded = load(path, against, named, wanted)
    _require_known(named, loaded)
    if chosen:
        _require_baseline(*chosen, loaded)
    question = Query(
        metrics=_known_metrics(wanted, loaded, optional=not metrics),
        allowed=_known_fields(allow, loaded),
        against=bool(against),
        baseline=chosen,
    )
    if gate is not None and question.metrics:
        _require_direction(gate, question.metrics[0], loaded)
    answer = compare_observations(loaded.observations, question)
    if answer.tables or form == "json":
        output(write(answer))
    _conclude(answer, loaded, gate)


def load(path: str, against: str, more_fields: Sequence[str], wanted: Iterable[str] | None) -> LoadedObservations:
    """Every valid result once by its id on each side, with all metrics or the wanted; of the rest, what is wrong."""
    fields = (*FIELDS, *more_fields)
    loaded = LoadedObservations()
    for side, place in (("results", path), ("against", against)):
        seen: set[str] = set()
        for judged in load_results(place) if place else ():
            if judged.problems:
                loaded.unread.append(printable(f"{judged.file}: {judged.problems[0]}"))
            elif judged.document["id"] in seen:
                loaded.doubled += 1
            else:
                seen.add(judged.document["id"])
                metrics = metrics_of(judged.document)
                loaded.metrics.update(metrics)
                loaded.fields.update(name for name in more_fields if has_path(judged.document, name))
                numbers = {name: metric_value(metrics[name]) for name in wanted or metrics if name in metrics}
                loaded.observations.append(observe(judged.document, side, judged.file, fields, numbers))
    return loaded


def _conclude(answer: Comparison, loaded: LoadedObservations, gate: Gate | None) -> None:
    """Say what was left out, and end as the worst of it asks."""
    if loaded.doubled:
        status(f"{loaded.doubled} results stand there twice, by their id, and were counted once")
    _say_left_out(loaded.unread)
    _say_left_out([exclusion_text(unfit) for unfit in answer.left_out])
    if answer.left_out:
        counts = Counter(field for unfit in answer.left_out for field in unfit.fields)
        told = ", ".join(f"{field}: {count}" for field, count in counts.items())
        status(
            f"{len(answer.left_out)} results are unfit ({told}); --allow FIELD brings them in, in lines of their own"
        )
    for finding in answer.refused:
        status(f"refused: {incompatibility_text(finding)}")
    unsure = _judge_gate(answer, gate) if gate is not None else ""
    problems = [unsure]
    if answer.left_out and not any(line.ratios or not answer.question.relative for line in answer.judged):
        problems.append("nothing is left to compare")
    if loaded.unread:
        problems.append(f"{len(loaded.unread)} documents are not valid")
    if answer.refused:
        fields = ", ".join(sorted({finding.field for finding in answer.refused}))
        problems.append(f"refused to compare what differs in {fields}")
    if problems := [problem for problem in problems if problem]:
        remedy = EXIT_INCONCLUSIVE if problems == [unsure] else EXIT_NOT_COMPARABLE
        raise SifmarkError("; ".join(problems), remedy)


def _say_left_out(lines: Sequence[str]) -> None:
    for line in lines[:MAX_LISTED]:
        status(f"left out: {line}")
    if len(lines) > MAX_LISTED:
        status(f"left out: {len(lines) - MAX_LISTED} more")


def _judge_gate(answer: Comparison, gate: Gate) -> str:
    """Empty where every line is shown to keep to the ratio, else why nobody can tell. Raises GateError."""
    if not answer.question.metrics:
        return "no result has a metric to judge"
    metric, judged = answer.question.metrics[0], answer.judged
    lines = [*judged, *(line.baseline for line in judged if line.baseline)]
    if unsteady := list(dict.fromkeys(file for line in lines for file in line.unsteady)):
        status(f"the gate rests on {len(unsteady)} results that were not steady, for example {printable(unsteady[0])}")
    kept = [gate.kept(line.ratios.get(metric)) for line in judged]
    worse = kept.count(False)
    if worse:
        text = f"{metric} of {worse} of {len(judged)} lines is {gate.side} {gate.ratio:g} times its baseline"
        raise GateError(text, "the ratios above show which")
    unsure = kept.count(None)
    unfit = [unfit for unfit in answer.left_out if not answer.question.is_baseline(unfit.result)]
    if unsure or unfit or not judged:
        parts = [f"{len(unfit)} unfit results"] if unfit else []
        parts += [f"{unsure} of {len(judged)} lines"] if unsure or not unfit else []
        return f"cannot tell of {' and '.join(parts)} whether {metric} is {gate.side} {gate.ratio:g} times its baseline"
    return ""


def _require_direction(gate: Gate, metric: str, loaded: LoadedObservations) -> None:
    """Raise UsageError for a gate that would let the worse pass: times, energies and memory are better when less."""
    numbers = (one.numbers.get(metric) for one in loaded.observations)
    unit = next((number.unit for number in numbers if number is not None), "")
    if not gate.above and unit.partition("/")[0] in COSTS:
        raise UsageError(f"--fail-below with {metric}: less of it is better", "use --fail-above, for example 1.05")
    if gate.above and unit.endswith(RATES):
        raise UsageError(f"--fail-above with {metric}: more of it is better", "use --fail-below, for example 0.95")


def _require_known(names: Sequence[str], loaded: LoadedObservations) -> None:
    """Raise UsageError for a field that no result has."""
    told = loaded.fields | {EVALUATED for one in loaded.observations if EVALUATED in one.fields}  # in no document
    for name in names:
        if loaded.observations and name not in told:
            raise UsageError(
                f"no result has the field {name!r}",
                "a field is a dotted path in the result, for example configuration.precision or host.hostname.value",
            )


def _require_baseline(name: str, value: str, loaded: LoadedObservations) -> None:
    """Raise UsageError where no result is a baseline."""
    question = Query((), baseline=(name, value))
    if loaded.observations and not any(map(question.is_baseline, loaded.observations)):
        seen = sorted({format_value(one.fields.get(name)) for one in loaded.observations})[:MAX_LISTED]
        raise UsageError(
            f"--baseline: no result has {name}={value}", f"the whole value counts; seen: {', '.join(seen)}"
        )


def _known_metrics(wanted: Sequence[str] | None, loaded: LoadedObservations, optional: bool) -> tuple[str, ...]:
    """The metrics asked for, all of them for None. Raises UsageError for one that no result has."""
    if wanted is None:
        return tuple(sorted(loaded.metrics))
    if not wanted:
        raise UsageError("--metrics is empty", f"name some, or {ALL}")
    for name in wanted:
        if name not in loaded.metrics and loaded.metrics and not optional:
            raise unknown_name("metric", name, loaded.metrics)
    return tuple(wanted)


def _known_fields(names: Sequence[str], loaded: LoadedObservations) -> frozenset[str]:
    """The fields that are allowed to differ. Raises UsageError for one that keeps nothing apart."""
    if names:
        settings = {name for one in loaded.observations for name in one.fields if name.startswith(SETTING)}
        known = {*FIELDS, *settings, *PLATFORM}
        for name in names:
            if name not in known | set(map(unit_field, loaded.metrics)):
                raise unknown_name("field", name, known)
    return frozenset(names)


def _baseline(text: str, against: str) -> tuple[str, str] | None:
    if not text:
        return None
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise UsageError(f"--baseline {text!r} is not FIELD=VALUE", "for example configuration.precision=fp32")
    if against:
        raise UsageError("--baseline and --against both name the baseline", "give one of them")
    return name, value


def _gate(below: str, above: str) -> Gate | None:
    if below and above:
        raise UsageError("--fail-below and --fail-above are two gates", "ask for one of them, once for each metric")
    if not below and not above:
        return None
    return Gate(_ratio(below or above, f"--fail-{'below' if below else 'above'}"), bool(above))


def _ratio(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise UsageError(f"{option} {text!r} is not a number above 0", "for example 0.95, or 1.05")
    return value


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
