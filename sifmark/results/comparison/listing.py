"""Results as a list for people: a table for each system, with repeats in one row."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sifmark.core.console import counted
from sifmark.results.catalogue import KINDS, MICROBENCHMARK, column_of, kind_of, rates
from sifmark.results.comparison.columns import cell_text
from sifmark.results.comparison.compare import sort_key
from sifmark.results.comparison.compatibility import FIELDS
from sifmark.results.comparison.intervals import mean
from sifmark.results.comparison.observation import Observation, observe
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields
from sifmark.results.comparison.scaling import BATCH, DEVICES
from sifmark.results.comparison.tables import TableStyle
from sifmark.results.documents import Document, metric_value, metrics_of
from sifmark.results.marks import Mark, letters_of_marks, meaning_of_letters, unpublished
from sifmark.results.numbers import abbreviated, compact, format_quantity
from sifmark.results.summary import NO_RESULT, precision_text, started_text

_STATE, _RECIPE, _KEY = "status.state", "provenance.image.recipe", "provenance.image.build_key"
_NOT_SETTINGS = {_STATE}  # in which repeats may differ
_COMPLETED = "completed"
_TIMES = {"requests": "latency_p50", MICROBENCHMARK: ""}  # by kind of run, none of sweeps; of others that of steps
_MEMORIES = ("peak_allocated_memory", "peak_process_memory")
# From how many columns of a terminal a list has these too.
ROOMY = 100  # columns of a terminal
_MORE = {"memory": ROOMY, "power": ROOMY, "started": 140, "first file": 140}
_HEADS = ("workload", "precision", "devices", "batch", "clients", "runs", "rate", "time", *_MORE, "marks", "differs in")
_SHORT = {"precision": "prec", "devices": "dev", "clients": "cli"}  # on a terminal


@dataclass
class _Row:
    """Runs that differ in nothing but how they ended."""

    kind: str
    name: str
    precision: str
    first: Document
    runs: list[Observation] = field(default_factory=list)

    @property
    def completed(self) -> list[Observation]:
        return [run for run in self.runs if run.fields[_STATE] == _COMPLETED]

    @property
    def shown(self) -> tuple[str, ...]:
        """What is always shown of it, and may be that of others."""
        fields = self.runs[0].fields
        clients = self.first["configuration"]["concurrency"]
        batch = NO_RESULT if self.kind == MICROBENCHMARK else cell_text(fields.get(BATCH))
        devices = cell_text(fields.get(DEVICES))
        name = self.name if self.kind == MICROBENCHMARK else f"{self.name} {self.kind}"
        return name, self.precision, devices, batch, cell_text(clients or None)


def listing(results: Iterable[tuple[str, Document]], style: TableStyle) -> Iterator[str]:
    """Yield the lines of a list of valid results, each with its file: systems, and below each its runs.

    A rate is the first headline of which more is better, as the mean of the runs that completed, with its interval if
    there are three or more.
    """
    systems = _systems(results)
    letters: set[str] = set()
    beside = {id(row): text for members in systems.values() for row, text in _differences(members)}
    heads = _heads([row for members in systems.values() for row in members], style, beside)
    optional = [head for head in _MORE if head in heads]
    while True:
        tables = [
            [
                [_head(head, style) for head in heads],
                *([_cell(row, head, beside[id(row)], style, letters) for head in heads] for row in members),
            ]
            for members in (sorted(members, key=_order) for members in systems.values())
        ]
        if not optional or all(map(style.has_room, tables)):
            break
        heads.remove(optional.pop())
    for number, (system, table) in enumerate(zip(systems, tables, strict=True)):
        if number:
            yield ""
        yield style.line(_heading(system, systems[system]))
        yield from style.table(table)
    if letters:
        yield ""
        yield style.line(f"marks: {meaning_of_letters(letters)}")


def _systems(results: Iterable[tuple[str, Document]]) -> dict[tuple[str, str], list[_Row]]:
    """Return the runs by site, or host without one, and device; repeats are in one row."""
    found: dict[tuple[str, str], dict[object, _Row]] = defaultdict(dict)
    for file, document in results:
        numbers = {name: metric_value(metric) for name, metric in metrics_of(document).items()}
        run = observe(document, "", file, FIELDS, numbers)
        fields = frozenset((name, value) for name, value in run.fields.items() if name not in _NOT_SETTINGS)
        place = str(document["site"] or run.host or NO_RESULT)
        system = place, str(document["accelerator"].get("name") or document["accelerator"]["kind"])
        key = run.group.identity, run.group.task, run.group.source, fields
        row = _Row(kind_of(document), document["workload"]["name"], precision_text(document["configuration"]), document)
        found[system].setdefault(key, row).runs.append(run)
    return {system: list(rows.values()) for system, rows in sorted(found.items())}


def _differences(rows: Sequence[_Row]) -> Iterator[tuple[_Row, str]]:
    """Yield each row with what tells it from those that look the same: `threads 2, steps 40`."""
    alike: dict[tuple[str, ...], list[_Row]] = defaultdict(list)
    for row in rows:
        alike[row.shown].append(row)
    for members in alike.values():
        names = [name for name in varying_fields([_group(row) for row in members]) if name not in _NOT_SETTINGS]
        for row in members:
            texts = [f"{column_of(name)} {cell_text(row.runs[0].fields.get(name))}" for name in names]
            source = {each.runs[0].group.source for each in members}
            yield row, ", ".join([*texts, *([f"{row.runs[0].group.source} data"] if len(source) > 1 else [])])


def _group(row: _Row) -> RepeatGroup:
    return RepeatGroup("", row.runs[0].fields, row.runs)


def _heading(system: tuple[str, str], rows: Sequence[_Row]) -> str:
    """Return a system in words: `alpha  NVIDIA H200 on alpha-n01, cuda (e636c973d999); 110 results`."""
    place, device = system
    runs = [run for row in rows for run in row.runs]
    hosts = list(dict.fromkeys(str(run.host) for run in runs if run.host))
    where = "" if not hosts or hosts == [place] else f" on {hosts[0] if len(hosts) == 1 else f'{len(hosts)} hosts'}"
    images = dict.fromkeys((run.fields.get(_RECIPE), run.fields.get(_KEY)) for run in runs)
    names = [f"{recipe} ({str(key).removeprefix('sha256:')[:12]})" for recipe, key in images if recipe]
    image = f", {names[0] if len(names) == 1 else f'{len(names)} images'}" if names else ""
    return f"{place}  {device}{where}{image}: {counted(len(runs), 'result')}"


def _heads(rows: Sequence[_Row], style: TableStyle, beside: dict[int, str]) -> list[str]:
    """Return the columns that there is room for, and that say something."""
    dropped = {head for head, least in _MORE.items() if style.width is not None and style.width < least}
    if all(row.shown[-1] == NO_RESULT for row in rows):
        dropped.add("clients")
    if not any(beside.values()):
        dropped.add("differs in")
    if style.width is not None or not any(_marks(row) for row in rows):
        dropped.add("marks")
    return [head for head in _HEADS if head not in dropped]


def _head(head: str, style: TableStyle) -> str:
    return head if style.width is None else _SHORT.get(head, head)


def _cell(row: _Row, head: str, beside: str, style: TableStyle, letters: set[str]) -> str:
    texts = {
        "runs": lambda: _runs(row),
        "rate": lambda: _rate(row),
        "time": lambda: _mean(row, _TIMES.get(row.kind, "step_time_p50")),
        "memory": lambda: next((text for name in _MEMORIES if (text := _mean(row, name)) != NO_RESULT), NO_RESULT),
        "power": lambda: _mean(row, "power_mean"),
        "started": lambda: started_text(row.first),
        "first file": lambda: row.runs[0].file,
        "differs in": lambda: beside,
        "marks": lambda: ", ".join(mark.name for mark in _marks(row)),
    }
    text = texts[head]() if head in texts else row.shown[_HEADS.index(head)]
    if style.width is None:
        return text
    if head == "rate":  # on a terminal with the letters of what is said of it
        marks = _marks(row)
        letters.update(mark.symbol for mark in marks)
        text = " ".join(filter(None, (text, letters_of_marks(marks))))
    return compact(abbreviated(text) if style.width < ROOMY else text)


def _runs(row: _Row) -> str:
    return str(len(row.runs)) if len(row.completed) == len(row.runs) else f"{len(row.completed)}/{len(row.runs)}"


def _rate(row: _Row) -> str:
    """Return the mean rate with its interval, or how the runs ended if none completed."""
    if not row.completed:
        (state, _), *_ = Counter(str(run.fields[_STATE]) for run in row.runs).most_common()
        return state.replace("_", " ")
    texts = (_mean(row, name, interval=True) for name in rates(row.kind))
    return next((text for text in texts if text != NO_RESULT), NO_RESULT)


def _mean(row: _Row, metric: str, interval: bool = False) -> str:
    numbers = [run.numbers[metric] for run in row.completed if metric in run.numbers]
    values = [number.value for number in numbers if number.value is not None]
    if not values:
        return NO_RESULT
    of_runs = mean(values)
    ends = (of_runs.low, of_runs.high) if interval else (None, None)
    return format_quantity(of_runs.value or 0.0, numbers[0].unit, *ends)


def _marks(row: _Row) -> list[Mark]:
    return unpublished(code for run in row.runs for code in run.marks)


def _order(row: _Row) -> list[object]:
    return [
        KINDS.index(row.kind),
        row.name,
        *(sort_key(int(text) if text.isdigit() else text) for text in row.shown[1:]),
    ]
