"""A result in a few lines for people: the number that matters first, then what it rests on."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from sifmark.core.console import fold, text_width
from sifmark.results.catalogue import MICROBENCHMARK, headlines, kind_of, metric_label, path_of, rates
from sifmark.results.documents import measured_metrics, metrics_of, value_at
from sifmark.results.marks import FEWEST_REPEATS, marks_of_result
from sifmark.results.numbers import compact, format_fraction, format_number, format_quantity, format_seconds
from sifmark.results.warnings import STOPS, duration, warnings_of

Document = dict[str, Any]


class Fact(NamedTuple):
    """Something to know of a result, and which question it answers."""

    question: str
    label: str
    text: str


_LABEL = 29  # columns of a label
_THROUGHPUT, _STEP_TIME = "throughput", "step_time_p50"
_MEMORY_COPY, _OF_MEMORY = "memory_copy", "memory_bandwidth"
_SPANS = ("phases.", "epochs.")
# What a run reached of the most that its devices can do, by metric. Each has a line, with a value or without.
FRACTIONS = {"fraction_of_bound": "fraction of its bound", "utilisation_of_measured_peak": "fraction of measured peak"}
_WITH_OTHERS = {"step_time_p99", "step_time_mean", "step_time_p90", "step_time_p95"}
_MEMORY = {"peak_process_memory": "host", "peak_allocated_memory": "device"}
_PERCENT = {
    *("utilisation", "utilisation_full_attention", "data_wait_fraction", "padding_fraction", "throttled_fraction"),
    *("rank_spread", "acceptance_rate", "utilisation_of_measured_peak_full_attention"),
}
_SPEED, _ORIGIN, _WARNING = "speed", "origin", "warning"
# What metrics answer, and how the names of those begin that their unit does not tell. Epochs, losses and targets are
# about the run.
_QUESTIONS: dict[str, tuple[str, ...]] = {
    _SPEED: ("step_time", "memory_bandwidth", "cached_bandwidth", "core_clock"),
    "latency": ("latency_", "time_to_first_token", "time_between_tokens", "small_message_latency"),
    "energy": (),
    "memory": (),
    "run": ("acceptance_rate",),
}
NO_RESULT = "-"
NEAREST = "nearest published figure"

HALF = ("bf16", "fp16", "fp8")
MIXED, PURE = "mixed", "pure"  # what of a run in half precision is: products, or weights and everything else too
_SUMMARY_FIELDS = (
    *("id", "site", "host.hostname", "started", "workload.name", "workload.task", "accelerator.name"),
    *("precision", "batch_size", "status.state", "numerics.state"),
)


def summary_row(document: Document) -> Document:
    """Return a result as a row, by the names that tables have for fields: throughput in `unit`, s, and MiB."""
    metrics = document["metrics"]
    return {
        **{name: value_at(document, path_of(name)) for name in _SUMMARY_FIELDS},
        "throughput": _value(metrics, "throughput"),
        "unit": metrics["throughput"]["unit"],
        "step_time_p50": _value(metrics, "step_time_p50"),
        "peak_process_memory": _value(metrics, "peak_process_memory"),
    }


def summary(document: Document, every_metric: bool = False, published: str = "", width: int | None = None) -> list[str]:
    """Return the lines that summarise a valid result; with `every_metric` also why some metrics have no value.

    `published` says which published figure is the nearest. What answers one question stands together: a fact on each
    line, or with a `width`, that of a terminal, as many as there is room for.
    """
    missing = {name: metric["reason"] for name, metric in measured_metrics(document).items() if metric["value"] is None}
    if every_metric:
        more = list(_missing_metrics(missing))
    else:
        more = [f"  {len(missing)} metrics have no value: --all-metrics says why"] if missing else []
    facts = list(_facts(document, published))
    if width is None:
        return [title(document), *_labelled(facts), *more]
    head, origin = title(document), f"  {', '.join(text for _, _, text in _origin(document))}"
    packed = _packed([fact for fact in facts if fact.question != _ORIGIN], width)
    return [
        *fold(head, width, 2),
        *fold(origin, width, 2),
        "",
        *packed,
        *(line for each in more for line in fold(each, width, 4)),
    ]


def precision_kind(configuration: Document) -> str | None:
    """Return what is computed in half precision, `mixed` or `pure`; results that do not say it go by their device."""
    pure = configuration["precision"] in HALF and configuration["device"] == "ipu"
    kind: str | None = configuration.get("precision_kind", PURE if pure else None)
    return kind


def precision_text(configuration: Document) -> str:
    """Return the precision, with a word if weights are in half precision too: `fp16 (pure)`."""
    precision: str = configuration["precision"]
    return f"{precision} ({PURE})" if precision_kind(configuration) == PURE else precision


def title(document: Document) -> str:
    """Return workload, task, precision, batch size, state and duration with the correctness check, in one line."""
    workload, configuration, status = document["workload"], document["configuration"], document["status"]
    clients = f", {configuration['concurrency']} clients" if configuration["concurrency"] else ""
    experiment = f"{workload['name']} {workload['task']}  {precision_text(configuration)}"
    state = status["state"] + ("" if status["state"] == "completed" else f": {status.get('message', '')}")
    count = document["accelerator"].get("count", 1)
    devices = f", {count} devices" if count > 1 else ""
    runs = f"{experiment}  batch {configuration['batch_size']}{clients}{devices}"
    return f"{runs}   {state}, {format_seconds(duration(document) + document['numerics'].get('seconds', 0.0))}"


def main_figure(document: Document) -> str:
    """Return the first headline of which more is better, with its unit, or a dash: of throughput with its interval."""
    measured = metrics_of(document)
    name = next((name for name in rates(kind_of(document)) if _value(measured, name) is not None), "")
    return _figure(document, measured, name) if name else NO_RESULT


def fractions_of(task: str) -> tuple[tuple[str, str], ...]:
    """Return the metrics of FRACTIONS with their labels; a sweep over sizes has none."""
    return () if task == MICROBENCHMARK else tuple(FRACTIONS.items())


def fraction_text(document: Document, name: str) -> str:
    """Return what a run reached of a bound, by the name of one of FRACTIONS, or why that is not known."""
    metric = metrics_of(document).get(name)
    if metric is None:
        return f"not known: results of schema {document['schema_version']} do not have it"
    value = metric["value"]
    return f"not known: {metric['reason']}" if value is None else format_number(value)


def _figure(document: Document, measured: Document, name: str) -> str:
    """Return a metric that has a value with its unit, and where it has one its interval over steps."""
    metric = measured[name]
    interval = document["steadiness"].get("throughput_interval", {}) if name == _THROUGHPUT else {}
    low, high = interval.get("low"), interval.get("high")
    scope = "" if low is None or high is None else "   (95 % over steps)"
    return f"{format_quantity(metric['value'], metric['unit'], low, high)}{scope}"


def _facts(document: Document, published: str) -> Iterator[Fact]:
    """Yield what there is to say, by question: the headlines first."""
    metrics, numerics, kind = metrics_of(document), document["numerics"], kind_of(document)
    named = [name for name in headlines(kind) if name in metrics]
    of_question: dict[str, list[Fact]] = {question: [] for question in _QUESTIONS}
    for name in dict.fromkeys((*named, *metrics)):
        if (
            not name.startswith(_SPANS)
            and name not in _elsewhere(document, kind)
            and (text := _text_of(document, metrics, name))
        ):
            of_question[_question_of(name, metrics[name]["unit"])].append(Fact("", *text))
    speed = of_question[_SPEED]
    if document["workload"]["name"] == _MEMORY_COPY and (why := metrics.get(_OF_MEMORY, {}).get("reason")):
        speed.insert(0, Fact("", metric_label(_OF_MEMORY), f"not known: {why}"))
    elif main_figure(document) == NO_RESULT:
        speed.insert(0, Fact("", metric_label(headlines(kind)[0]), NO_RESULT))
    speed += [
        Fact("", label, _fraction_of(document, name)) for name, label in fractions_of(document["workload"]["task"])
    ]
    if memory := ", ".join(_memory(document, metrics)):
        of_question["memory"].insert(0, Fact("", "memory", memory))
    for question, facts in of_question.items():
        yield from (fact._replace(question=question) for fact in facts)
    reason = f": {numerics['reason']}" if "reason" in numerics else ""
    yield Fact("correctness", "correctness", numerics["state"].replace("_", " ") + reason)
    if published:
        yield Fact("published", NEAREST, published)
    yield from _origin(document)
    yield from (Fact(_WARNING, _WARNING, text) for text in warnings_of(document))
    if document["status"]["state"] in ("completed", *STOPS) and (reservations := _reservations(document)):
        yield Fact("publish", "publish", reservations)


def _elsewhere(document: Document, kind: str) -> set[str]:
    """Return the metrics that are in the line of another, or say the same as one."""
    same = {"throughput_per_device", "energy_per_device"} if document["accelerator"].get("count", 1) == 1 else set()
    of_a_sweep = set() if _THROUGHPUT in headlines(kind) else {_THROUGHPUT}  # the mean of all sizes
    return {*_WITH_OTHERS, *_MEMORY, *FRACTIONS, *same, *of_a_sweep}


def _text_of(document: Document, metrics: Document, name: str) -> tuple[str, str] | None:
    """Return a metric's label and text, with those that are in its line; None without a value."""
    value = metrics[name]["value"]
    if value is None:
        return None
    if name == _STEP_TIME:
        return "step time", f"{format_quantity(value, 's')} median{_slowest_step(document)}"
    if name in _PERCENT:
        return metric_label(name), format_fraction(value)
    return metric_label(name), _figure(document, metrics, name)


def _question_of(name: str, unit: str) -> str:
    """Return which question a metric answers, by its name or its unit."""
    for question, names in _QUESTIONS.items():
        if name.startswith(names):
            return question
    parts = set(unit.split("/"))
    if parts & {"J", "W", "Wh"}:
        return "energy"
    return "memory" if unit == "MiB" else _SPEED if len(parts) > 1 or name in _PERCENT else "run"


def _memory(document: Document, metrics: Document) -> Iterator[str]:
    """Yield how much memory a run used where; of which size, if one device has all of it."""
    accelerator = document["accelerator"]
    for name, where in _MEMORY.items():
        if (used := _value(metrics, name)) is not None:
            size = accelerator.get("memory_mib") if where == "device" and accelerator.get("count", 1) == 1 else None
            of_size = f" of {format_quantity(size, 'MiB')}" if size else ""
            yield f"{format_quantity(used, 'MiB')}{of_size} {where}"


def _fraction_of(document: Document, name: str) -> str:
    """Return what a run reached of a bound in percent, or why that is not known."""
    value = _value(metrics_of(document), name)
    return fraction_text(document, name) if value is None else format_fraction(value)


def _slowest_step(document: Document) -> str:
    """Return the 99th percentile of the step time if there are steps enough for it, else the slowest step."""
    if (p99 := _value(measured_metrics(document), "step_time_p99")) is not None:
        return f", {format_quantity(p99, 's')} p99"
    slowest = (document["steps"]["quantiles"] or {}).get("p100")
    return "" if slowest is None else f", {format_quantity(slowest, 's')} slowest"


def _reservations(document: Document) -> str:
    """Return in one line what keeps the number from being published; nothing if it needs no more than its repeats."""
    reasons = [mark.name for mark in marks_of_result(document) if mark.everywhere]
    if (state := document["status"]["state"]) in STOPS:
        reasons.insert(0, state.replace("_", " "))
    if reasons:
        return f"no: {', '.join(reasons)}"
    alone = ((document["configuration"].get("repeat") or {}).get("of") or 1) < FEWEST_REPEATS
    text = f"not alone: only {FEWEST_REPEATS} or more runs have an interval (--repeat {FEWEST_REPEATS})"
    return text if alone else ""


def _origin(document: Document) -> Iterator[Fact]:
    accelerator, provenance = document["accelerator"], document["provenance"]
    image, software = provenance["image"], provenance["software"]
    count = f"{accelerator['count']} x " if accelerator.get("count", 1) != 1 else ""
    device = f"{count}{accelerator.get('name', accelerator['kind'])} on {document['host']['hostname']['value']}"
    yield Fact(_ORIGIN, "device", device)
    built = f"{image['recipe']}, build {image['build_key'][7:19]}" if image else "none: run outside an image"
    yield Fact(_ORIGIN, "image", built)
    if software.get("framework_version"):
        yield Fact(_ORIGIN, "framework", f"{software['framework']} {software['framework_version']}")
    yield Fact(_ORIGIN, "started", f"{started_text(document)} UTC")


def started_text(document: Document) -> str:
    """Return when a run started, UTC, to the second."""
    return str(document["started"]).partition(".")[0].replace("T", " ").removesuffix("Z")


def _missing_metrics(reasons: dict[str, str]) -> Iterator[str]:
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names_by_reason.setdefault(reason, []).append(name)
    for reason, names in names_by_reason.items():
        yield f"  no value: {', '.join(names)}: {reason}"


def _value(metrics: Document, name: str) -> float | None:
    """Return a metric's value; None if there is none, or no such metric."""
    value: float | None = metrics.get(name, {}).get("value")
    return value


def _labelled(facts: Iterable[Fact]) -> Iterator[str]:
    for fact in facts:
        yield f"  {fact.label:<{_LABEL}} {fact.text}"


def _place(fact: Fact) -> Fact | str:
    """Return what the facts on a line have in common: each warning is alone."""
    return fact if fact.question == _WARNING else fact.question


def _packed(facts: Sequence[Fact], width: int) -> Iterator[str]:
    """Yield as many facts on a line as there is room for, behind the question that they answer."""
    indent = 2 + max(len(fact.question) for fact in facts) + 2
    for _, members in groupby(facts, key=_place):
        lines: list[str] = []
        for fact in members:
            question = fact.question
            alone = fact.label == NEAREST or (fact.label == question and not lines)
            text = " ".join(compact(fact.text if alone else f"{fact.label} {fact.text}").split())
            if lines and text_width(f"{lines[-1]}; {text}") <= width - indent:
                lines[-1] += f"; {text}"
            else:
                lines += fold(text, width - indent, 2)
        for number, line in enumerate(lines):
            yield f"  {'' if number else question}".ljust(indent) + line
