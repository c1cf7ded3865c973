"""The answers of a report in words: statements about results, below the questions of the study that ask for them."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sifmark.report.content.summary import best_points, ratio_to_best
from sifmark.report.content.tables import all_marks, configuration_of, mean_text, scale_of
from sifmark.report.marks import Mark
from sifmark.report.results import Point, ReportResults, Section
from sifmark.results.comparison.intervals import Ratio
from sifmark.results.comparison.scaling import BATCH, DEVICES, THROUGHPUT
from sifmark.results.comparison.tables import ratio_text

OUT_OF_MEMORY = "out_of_memory"
NO_DIFFERENCE = ", no difference shown"
LATENCY, ENERGY, FIRST_EPOCH, SECOND_EPOCH = "latency_p99", "energy_per_unit", "epochs.1", "epochs.2"
MOST_SYSTEMS = 4  # of which a statement is made each; of more, of the best and the worst


class Topic(StrEnum):
    """What a statement is about."""

    SPEED = "speed"
    BATCH = "batch"
    MEMORY = "memory"
    SCALING = "scaling"
    LATENCY = "latency"
    ENERGY = "energy"
    EPOCHS = "epochs"
    AGREEMENT = "agreement"
    CORRECTNESS = "correctness"


# The words by which a question asks for statements about a topic.
_WORDS = {
    Topic.SPEED: r"fast|faster|slower|speed|throughput|per second|how long does an? (epoch|batch)",
    Topic.BATCH: r"batch",
    Topic.MEMORY: r"memory|fits?|largest",
    Topic.SCALING: r"scales?|scaling|parallel|devices",
    Topic.LATENCY: r"latency|requests?|answers?",
    Topic.ENERGY: r"energy|watts?|wh|power",
    Topic.EPOCHS: r"epochs?|compil\w+",
    Topic.AGREEMENT: r"repeats?|agree|vary|noise",
    Topic.CORRECTNESS: r"correct\w*",
}


@dataclass(frozen=True)
class Answer:
    """A statement in words, with the places on the page that it rests on."""

    topic: Topic
    subject: str  # the workload and task; empty for all results
    text: str
    points: tuple[Point, ...] = ()

    @property
    def marks(self) -> tuple[Mark, ...]:
        """All marks of its numbers."""
        return all_marks(self.points)


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question of a study with the statements that answer it; those that nobody asked for have no question."""

    question: str
    answers: tuple[Answer, ...]

    @property
    def by_subject(self) -> list[tuple[str, list[Answer]]]:
        """The answers, those about the same workload and task together."""
        subjects = dict.fromkeys(answer.subject for answer in self.answers)
        return [(subject, [each for each in self.answers if each.subject == subject]) for subject in subjects]


def answered_questions(results: ReportResults, questions: Sequence[str]) -> tuple[AnsweredQuestion, ...]:
    """Return the questions with their answers, then what the results say besides."""
    answers = tuple(_answers(results))
    asked = {question: _topics(question) for question in questions}
    answered = [
        AnsweredQuestion(question, tuple(each for each in answers if each.topic in topics))
        for question, topics in asked.items()
    ]
    covered = set[Topic]().union(*asked.values())
    rest = tuple(each for each in answers if each.topic not in covered)
    return (*answered, *([AnsweredQuestion("", rest)] if rest else []))


# How a statement begins.
_LABELS = {
    Topic.SPEED: "Throughput",
    Topic.BATCH: "Batch size",
    Topic.MEMORY: "Memory",
    Topic.SCALING: "Scaling",
    Topic.LATENCY: "Latency",
    Topic.ENERGY: "Energy",
    Topic.EPOCHS: "Epochs",
}


def _topics(question: str) -> set[Topic]:
    return {topic for topic, words in _WORDS.items() if re.search(rf"\b({words})\b", question, re.IGNORECASE)}


def _answers(results: ReportResults) -> Iterator[Answer]:
    for topic, statements in _STATEMENTS.items():
        for section in results.sections:
            subject = f"{section.short_title}, {section.key.task}"
            if said := list(statements(section)):
                text = "; ".join(words for words, _ in said)
                points = tuple(point for _, some in said for point in some)
                yield Answer(topic, subject, f"{_LABELS[topic]}: {text}.", points)
    yield from _agreement(results)
    yield from _correctness(results)


Statement = tuple[str, tuple[Point, ...]]  # about a system, as a part of a sentence


def _speed(section: Section) -> Iterator[Statement]:
    best = best_points(section)
    for name, point in _few(best).items():
        compared = ratio_to_best(point, best, section.results)
        words = [f"{name} reaches {_measured(point)}"]
        if compared is not None and compared.value is not None:
            words.append(_compared(point, compared, section.results.divisor))
        yield ", ".join(words), (point,)


def _batch(section: Section) -> Iterator[Statement]:
    for name, points in _of_systems(section, THROUGHPUT).items():
        series = _longest_series(points)
        if len(series) > 1:
            first, last = series[0], series[-1]
            yield (
                f"on {name} from {_value(first)} at batch size {_batch_size(first)} to {_value(last)} "
                f"at {_batch_size(last)}",
                (first, last),
            )


def _memory(section: Section) -> Iterator[Statement]:
    failed: dict[str, list[int]] = defaultdict(list)
    for failure in section.failures:
        batch = failure.result.document["configuration"]["batch_size"]
        if failure.state == OUT_OF_MEMORY and batch is not None:
            failed[failure.system].append(batch)
    ran = _of_systems(section, THROUGHPUT)
    for name, batches in sorted(failed.items()):
        largest = max(ran.get(name, []), key=_batch_size, default=None)
        did = f"the largest batch that ran is {_batch_size(largest)}" if largest else "no batch ran"
        yield f"on {name} {did}, and batch size {min(batches)} ran out of memory", (largest,) if largest else ()


def _scaling(section: Section) -> Iterator[Statement]:
    for name, points in _of_systems(section, THROUGHPUT).items():
        widest: dict[str, Point] = {}
        for point in points:
            for each in point.row.scalings:
                if each.kind not in widest or point.fields[DEVICES] > widest[each.kind].fields[DEVICES]:
                    widest[each.kind] = point
        for kind, point in sorted(widest.items()):
            scaling = next(each for each in point.row.scalings if each.kind == kind)
            efficiency, fewest = scaling.efficiency, scaling.reference.fields[DEVICES]
            if efficiency.value is not None:
                interval = "" if efficiency.low is None else f" [{efficiency.low:.0%}, {efficiency.high:.0%}]"
                yield (
                    f"on {name} {_measured(point)}: an efficiency of {efficiency.value:.0%}{interval} relative to "
                    f"{fewest} device{'s' * (fewest != 1)} ({kind} scaling)",
                    (point,),
                )


def _latency(section: Section) -> Iterator[Statement]:
    for name, points in _of_systems(section, LATENCY).items():
        least = min(points, key=lambda point: point.mean.value or 0.0)
        yield f"99 % of requests to {name} are answered within {_measured(least)}", (least,)


def _energy(section: Section) -> Iterator[Statement]:
    for name, points in _of_systems(section, ENERGY).items():
        least = min(points, key=lambda point: point.mean.value or 0.0)
        yield f"{name} needs {_measured(least)}", (least,)


def _epochs(section: Section) -> Iterator[Statement]:
    second = {_identity(point): point for point in section.points(SECOND_EPOCH)}
    chosen: dict[str, tuple[Point, Point]] = {}
    for point in section.points(FIRST_EPOCH):
        if partner := second.get(_identity(point)):
            chosen[point.system] = (point, partner)
    for name, (first, following) in list(chosen.items())[:MOST_SYSTEMS]:
        yield f"on {name} the first epoch takes {_measured(first)}, the second {_value(following)}", (first, following)


_STATEMENTS: dict[Topic, Callable[[Section], Iterator[Statement]]] = {
    Topic.SPEED: _speed,
    Topic.BATCH: _batch,
    Topic.MEMORY: _memory,
    Topic.SCALING: _scaling,
    Topic.LATENCY: _latency,
    Topic.ENERGY: _energy,
    Topic.EPOCHS: _epochs,
}


def _agreement(results: ReportResults) -> Iterator[Answer]:
    points = [point for section in results.sections for point in section.points(THROUGHPUT)]
    widths = {index: width for index, point in enumerate(points) if (width := _relative_width(point)) is not None}
    if not widths:
        if points:
            text = (
                "Repeats: no configuration has the three that an interval needs, so nothing shows how well they agree."
            )
            yield Answer(Topic.AGREEMENT, "", text)
        return
    widest = points[max(widths, key=lambda index: widths[index])]
    text = (
        f"Repeats: {len(widths)} of {len(points)} configurations have an interval of throughput. Relative to its value "
        f"the widest is that of {widest.system}: {_measured(widest)}."
    )
    yield Answer(Topic.AGREEMENT, "", text, (widest,))


def _correctness(results: ReportResults) -> Iterator[Answer]:
    total, failed = len(results.members), len(results.failures)
    states = Counter(each.document["numerics"]["state"] for each in results.members)
    text = f"Correctness: {states.pop('passed', 0)} of {total} results passed the check"
    others = [f"{state.replace('_', ' ')} {count}" for state, count in sorted(states.items())]
    text += f"; {', '.join(others)}." if others else "."
    yield Answer(Topic.CORRECTNESS, "", f"{text} {failed} are no measurement." if failed else text)


def _of_systems(section: Section, metric: str) -> dict[str, list[Point]]:
    """Return the points of a metric by system; of many systems, those of the first ones."""
    points: dict[str, list[Point]] = {}
    for point in section.points(metric):
        points.setdefault(point.system, []).append(point)
    names = [name for name in section.results.systems if name in points][:MOST_SYSTEMS]
    return {name: points[name] for name in names}


def _few(by_system: dict[str, Point]) -> dict[str, Point]:
    """Return the points of all systems; of many, those of the first, the best and the worst."""
    if len(by_system) <= MOST_SYSTEMS:
        return by_system
    ordered = sorted(by_system, key=lambda name: by_system[name].mean.value or 0.0)
    chosen = {next(iter(by_system)), ordered[0], ordered[-1]}
    return {name: point for name, point in by_system.items() if name in chosen}


def _longest_series(points: Sequence[Point]) -> list[Point]:
    """Return the points that differ in the batch alone, by batch; of several such series the longest."""
    series: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        if _batch_size(point):
            series[configuration_of(point.observation, _BESIDE_BATCH)].append(point)
    longest = max(series.values(), key=lambda group: len({_batch_size(point) for point in group}), default=[])
    return list({_batch_size(point): point for point in sorted(longest, key=_batch_size)}.values())


_BESIDE_BATCH = ("configuration.strategy", DEVICES, "configuration.precision", "configuration.concurrency")


def _batch_size(point: Point) -> int:
    return int(point.fields.get(BATCH) or 0)


def _identity(point: Point) -> frozenset[str]:
    return frozenset(result.observation.id for result in point.results)


def _relative_width(point: Point) -> float | None:
    mean = point.mean
    return None if mean.low is None or mean.high is None or not mean.value else (mean.high - mean.low) / mean.value


def _measured(point: Point) -> str:
    """Return what a point measured with its interval, unit and configuration."""
    configuration = configuration_of(point.observation)
    return _value(point) + (f" ({configuration})" if configuration else "")


def _value(point: Point) -> str:
    """Return what a point measured: `412 images/s [405, 419]`."""
    scale = scale_of([point])
    number, _, interval = mean_text(point.mean, scale).partition(" ")
    return f"{number} {scale.words} {interval}".rstrip()


def _compared(point: Point, compared: Ratio, divisor: str) -> str:
    """Return a ratio within a sentence: `1.6x faster [1.5, 1.7] than alpha`."""
    words = ratio_text(compared, point.unit)
    if compared.low is None:
        return f"{words.removesuffix(', cannot tell')} than {divisor}, which so few repeats cannot confirm"
    if words.endswith(NO_DIFFERENCE):
        return f"{words.removesuffix(NO_DIFFERENCE)} that of {divisor}: {NO_DIFFERENCE[2:]}"
    factor, _, interval = words.partition(" [")
    return f"{factor} than {divisor} [{interval}"
