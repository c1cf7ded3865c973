"""The compare verb: results in groups, against a baseline, and a gate for pipelines."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sifmark.comparability import FIELDS, unit_field
from sifmark.comparison import Answer, Line, Question, compare
from sifmark.console import legible, say, show
from sifmark.errors import SifmarkError, UsageError, unknown_name
from sifmark.observation import PLATFORM, SETTING, Observation, metrics_of, number, observe
from sifmark.reading import judge_path
from sifmark.tables import FORMATS, sentence, unfit_sentence

DEFAULT_METRICS = ["throughput", "step_time_p50", "peak_process_memory"]
ALL = "all"
MOST_TOLD = 20  # by name, of what is left out for one reason


class BelowError(SifmarkError):
    """The gate was asked, and the answer is no. The exit code is 7."""

    exit_code = 7


@dataclass
class Loaded:
    """Results of one or two paths, each counted once."""

    observations: list[Observation] = field(default_factory=list)
    metrics: set[str] = field(default_factory=set)  # that any result has, in whatever number
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
) -> None:
    """Print the comparison. Raises SifmarkError where something did not compare, BelowError where the gate fails."""
    write = FORMATS.get(form)
    if write is None:
        raise unknown_name("format", form, FORMATS)
    least = _ratio(fail_below) if fail_below else None
    chosen = _baseline(baseline, against)
    if least is not None and not against and chosen is None:
        raise UsageError("--fail-below needs something to be below", "add --against PATH or --baseline FIELD=VALUE")
    wanted = None if metrics == ALL else _words(metrics) if metrics else DEFAULT_METRICS
    loaded = load(path, against, _words(by) + ([chosen[0]] if chosen else []), wanted)
    question = Question(
        metrics=_known_metrics(wanted, loaded, optional=not metrics),
        allowed=_known_fields(allow, loaded),
        against=bool(against),
        baseline=chosen,
    )
    answer = compare(loaded.observations, question)
    if answer.tables or form == "json":
        show(write(answer))
    _conclude(answer, loaded, least)


def load(path: str, against: str, more_fields: Iterable[str], wanted: Iterable[str] | None) -> Loaded:
    """Every valid result once by its id on each side, with all metrics or the wanted; of the rest, what is wrong."""
    fields = (*FIELDS, *more_fields)
    loaded = Loaded()
    for side, place in (("results", path), ("against", against)):
        seen: set[str] = set()
        for judged in judge_path(place) if place else ():
            if judged.problems:
                loaded.unread.append(legible(f"{judged.file}: {judged.problems[0]}"))
            elif judged.document["id"] in seen:
                loaded.doubled += 1
            else:
                seen.add(judged.document["id"])
                metrics = metrics_of(judged.document)
                loaded.metrics.update(metrics)
                numbers = {name: number(metrics[name]) for name in wanted or metrics if name in metrics}
                loaded.observations.append(observe(judged.document, side, judged.file, fields, numbers))
    return loaded


def _conclude(answer: Answer, loaded: Loaded, least: float | None) -> None:
    """Say what was left out, and end as the worst of it asks."""
    if loaded.doubled:
        say(f"{loaded.doubled} results stand there twice, by their id, and were counted once")
    _say_left_out(loaded.unread)
    _say_left_out([unfit_sentence(unfit) for unfit in answer.left_out])
    if answer.left_out:
        counts = Counter(field for unfit in answer.left_out for field in unfit.fields)
        told = ", ".join(f"{field}: {count}" for field, count in counts.items())
        say(f"{len(answer.left_out)} results are unfit ({told}); --allow FIELD brings them in, in lines of their own")
    for finding in answer.refused:
        say(f"refused: {sentence(finding)}")
    problems = [_judge_gate(answer, least)] if least is not None else []
    if answer.left_out and not any(line.ratios or not answer.question.relative for line in answer.judged):
        problems.append("nothing is left to compare")
    if loaded.unread:
        problems.append(f"{len(loaded.unread)} documents are not valid")
    if answer.refused:
        fields = ", ".join(sorted({finding.field for finding in answer.refused}))
        problems.append(f"refused to compare what differs in {fields}")
    if problems := [problem for problem in problems if problem]:
        remedy = "select what compares, repair what is not valid (inv validate), or override with --allow FIELD"
        raise SifmarkError("; ".join(problems), remedy)


def _say_left_out(lines: Sequence[str]) -> None:
    for line in lines[:MOST_TOLD]:
        say(f"left out: {line}")
    if len(lines) > MOST_TOLD:
        say(f"left out: {len(lines) - MOST_TOLD} more")


def _judge_gate(answer: Answer, least: float) -> str:
    """Empty where every line is shown to reach the ratio, else why nobody can tell. Raises BelowError."""
    metric, judged = answer.question.metrics[0], answer.judged
    lines = [*judged, *(line.baseline for line in judged if line.baseline)]
    if unsteady := list(dict.fromkeys(file for line in lines for file in line.unsteady)):
        say(f"the gate rests on {len(unsteady)} results that were not steady, for example {legible(unsteady[0])}")
    below = [line for line in judged if _high(line, metric) < least]
    if below:
        text = f"{metric} of {len(below)} of {len(judged)} lines is below {least:g} times its baseline"
        raise BelowError(text, "the ratios above show which")
    unsure = [line for line in judged if not _low(line, metric) >= least]
    unfit = [unfit for unfit in answer.left_out if not answer.question.is_baseline(unfit.result)]
    if unsure or unfit or not judged:
        parts = [f"{len(unfit)} unfit results"] if unfit else []
        parts += [f"{len(unsure)} of {len(judged)} lines"] if unsure or not unfit else []
        return f"cannot tell of {' and '.join(parts)} whether {metric} reaches {least:g} times its baseline"
    return ""


def _low(line: Line, metric: str) -> float:
    ratio = line.ratios.get(metric)
    return float("-inf") if ratio is None or ratio.low is None else ratio.low


def _high(line: Line, metric: str) -> float:
    ratio = line.ratios.get(metric)
    return float("inf") if ratio is None or ratio.high is None else ratio.high


def _known_metrics(wanted: Sequence[str] | None, loaded: Loaded, optional: bool) -> tuple[str, ...]:
    """The metrics asked for, all of them for None. Raises UsageError for one that no result has."""
    if wanted is None:
        return tuple(sorted(loaded.metrics))
    if not wanted:
        raise UsageError("--metrics is empty", f"name some, or {ALL}")
    for name in wanted:
        if name not in loaded.metrics and loaded.metrics and not optional:
            raise unknown_name("metric", name, loaded.metrics)
    return tuple(wanted)


def _known_fields(names: Sequence[str], loaded: Loaded) -> frozenset[str]:
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
        raise UsageError(f"--baseline {text!r} is not FIELD=VALUE", "for example accelerator.name=A100")
    if against:
        raise UsageError("--baseline and --against both name the baseline", "give one of them")
    return name, value


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise UsageError(f"--fail-below {text!r} is not a number above 0", "for example 0.95")
    return value


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
