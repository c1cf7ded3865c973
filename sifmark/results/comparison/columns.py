"""A comparison as a grid: a column for each system, a row for each configuration.

A system is what the fields have in common in which results differ from their baselines, or without baselines their
platform. What is the same for all results of a system is a fact about it; all else that varies separates the rows.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sifmark.results.catalogue import column_of
from sifmark.results.comparison.baselines import fields_that_may_differ
from sifmark.results.comparison.compare import Comparison, ComparisonTable, sort_key
from sifmark.results.comparison.compatibility import FIELDS
from sifmark.results.comparison.observation import (
    CONCURRENCY,
    NETWORK,
    NODES,
    PLATFORM,
    PRECISION,
    SETTING,
    Observation,
)
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields
from sifmark.results.comparison.scaling import BATCH, DEVICES, EXECUTION, STRATEGY, follows_devices

MOST_SYSTEMS = 6  # with a column each; more of them are rows
SITE, DEVICE_NAME, CPU = "site", "accelerator.name", "host.cpu_model.value"
# Fields that name a system, the best first.
SYSTEM_NAMES = (SITE, DEVICE_NAME, "configuration.framework", "accelerator.kind")
_STATE = "status.state"
_KNOWN_LATE = (NODES, NETWORK, EXECUTION)
_FIRST_KEYS = (*SYSTEM_NAMES, PRECISION, STRATEGY, DEVICES, NODES, BATCH, CONCURRENCY)
# What differs with the name of a device, and says less.
OF_DEVICE = ("accelerator.kind", "accelerator.vendor", "configuration.device")
Identity = tuple[Any, ...]


@dataclass(frozen=True)
class System:
    """A column: what it is called, and the fields that all of its rows have in common; of one without rows, none."""

    name: str
    fields: Mapping[str, Any]


@dataclass
class Line:
    """A configuration: the texts of its keys; by the number of a system its repeats, or how its run ended."""

    keys: tuple[str, ...]
    cells: dict[int, RepeatGroup] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    @property
    def rows(self) -> list[RepeatGroup]:
        """The repeats of all systems."""
        return [self.cells[number] for number in sorted(self.cells)]


# By the text of a key, what it decides: by the path of each field its text.
Following = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Grid:
    """The rows of a table by system and configuration. Of a comparison with baselines the first system has these."""

    table: ComparisonTable
    systems: list[System]
    keys: list[str]  # paths of the fields that separate lines
    following: dict[str, Following]  # fields that one of the keys decides, by that key
    lines: list[Line]
    relative: bool
    many: bool  # whether there are too many systems for a column each, so that they are rows

    def name_of(self, number: int, row: RepeatGroup) -> str:
        """Return what the system of a row is called."""
        if self.many and number:
            return cell_text(next((row.fields[name] for name in SYSTEM_NAMES if name in self.keys), None))
        return self.systems[number].name

    def differing(self, but: Iterable[str] = ()) -> Iterator[tuple[str, list[str]]]:
        """Yield the facts in which the systems differ, each with its texts by system."""
        known = [system.fields for system in self.systems if system.fields]
        named = {name: [cell_text(fields[name]) for fields in known] for name in known[0]}
        implied = OF_DEVICE if len(set(named.get(DEVICE_NAME, ()))) > 1 else ()
        for name, texts in sorted(named.items()):
            if len(set(texts)) > 1 and name not in implied and name not in but:
                yield name, texts


def grid_of(table: ComparisonTable, comparison: Comparison) -> Grid:
    """Return the grid of a table, with the runs that failed at its configurations."""
    query = comparison.query
    return _Builder(table, query).grid([each.result for each in comparison.excluded if _STATE in each.fields])


def cell_text(value: Any) -> str:
    """Return the value of a field as tables have it."""
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:19] if text.startswith("sha256:") else text


class _Builder:
    """Divides the fields in which the rows of a table differ among its columns, its lines and facts."""

    def __init__(self, table: ComparisonTable, query: Query) -> None:
        self.table, self.query = table, query
        self.varying = varying_fields(table.rows)
        self.may_differ = {name for name in self.varying if not name.startswith(SETTING)}
        self.may_differ |= fields_that_may_differ(query).union(PLATFORM)
        # Fields in which a row differs from its baseline: these tell systems apart, and no lines.
        pairs = [(row, row.baseline) for row in table.rows if row.baseline is not None]
        self.unlike = {
            name for name in self.varying if any(row.fields.get(name) != base.fields.get(name) for row, base in pairs)
        }
        self.apart = self._apart_with_baselines() if query.relative else self._apart_alone()
        self.many = len(self._members()) - query.relative > MOST_SYSTEMS
        if self.many:
            self.apart = []
        self.members = self._members()
        self.facts = self._facts(self.members)

    def grid(self, failed: Iterable[Observation]) -> Grid:
        systems = [self._system(number, values) for number, values in enumerate(self.members)]
        keys = [name for name in self.varying if name not in self.facts and not self._is_of_columns(name)]
        keys.sort(key=lambda name: (_FIRST_KEYS.index(name) if name in _FIRST_KEYS else len(_FIRST_KEYS), name))
        keys.sort(key=lambda name: name in (BATCH, CONCURRENCY))  # last: it varies most
        lines = self._lines(keys)
        self._add_failed(lines, keys, failed)
        lines.sort(key=lambda line: [sort_key(_number(text)) for text in line.keys])
        following = _following(keys, lines)
        lines = [line for line in lines if line.cells or _agrees(line, keys, following)]
        decided = {name for of_key in following.values() for fields in of_key.values() for name in fields}
        kept = [number for number, name in enumerate(keys) if name not in decided]
        for line in lines:
            line.keys = tuple(line.keys[number] for number in kept)
        seen = Counter(line.keys for line in lines)
        lines = [line for line in lines if line.cells or seen[line.keys] == 1]  # which of them failed, a list says
        shown = [keys[number] for number in kept]
        return Grid(self.table, systems, shown, following, lines, self.query.relative, self.many)

    def _apart_with_baselines(self) -> list[str]:
        """Return the fewest fields that separate the rows with the same baseline: that of the baselines first."""
        others = self.table.compared(self.query)
        asked = self.query.baseline[0] if self.query.baseline else None
        apart = [asked] if asked and len({row.fields.get(asked) for row in others}) > 1 else []
        candidates = sorted(self.unlike, key=_rank)
        while collisions := self._collisions(others, apart):
            separating = (name for name in candidates if any(_differ(rows, name) for rows in collisions))
            name = next(separating, None)
            if name is None:
                break
            candidates.remove(name)
            apart.append(name)
        return apart

    def _apart_alone(self) -> list[str]:
        """Return the field that names systems best, or none if the rows have the same one."""
        return [name for name in SYSTEM_NAMES if name in self.varying and name in self.may_differ][:1]

    def _collisions(self, rows: Sequence[RepeatGroup], apart: Sequence[str]) -> list[list[RepeatGroup]]:
        facts = self._facts(self._members(apart))
        cells: dict[Identity, list[RepeatGroup]] = defaultdict(list)
        for row in rows:
            cells[self._identity(row, apart, facts), _values(row, apart)].append(row)
        return [members for members in cells.values() if len(members) > 1]

    def _identity(self, row: RepeatGroup, apart: Sequence[str], facts: Iterable[str]) -> Identity:
        """Return what the rows of a line have in common."""
        if self.query.relative and (self.query.is_baseline(row) or row.baseline is not None):
            return (id(row.baseline or row),)
        own = {*self.varying} - {*apart, *facts} - self.unlike
        return tuple((name, row.fields.get(name)) for name in sorted(own))

    def _members(self, apart: Sequence[str] | None = None) -> dict[Identity, list[RepeatGroup]]:
        """Return the rows by system, the baselines first."""
        names = self.apart if apart is None else apart
        members: dict[Identity, list[RepeatGroup]] = {}
        if self.query.relative:
            members["baseline",] = [row for row in self.table.rows if self.query.is_baseline(row)]
        for row in self.table.compared(self.query):
            members.setdefault(("other", *_values(row, names)), []).append(row)
        first, others = (1, list(members)) if self.query.relative else (0, list(members))
        ordered = others[:first] + sorted(others[first:], key=lambda values: list(map(sort_key, values)))
        return {values: members[values] for values in ordered}

    def _facts(self, members: Mapping[Identity, Sequence[RepeatGroup]]) -> set[str]:
        """Return the fields with one value in each system; but those that keep rows from having a baseline are keys."""
        return {
            name
            for name in self.varying
            if name in self.may_differ
            and all(len({row.fields.get(name) for row in rows}) <= 1 for rows in members.values())
        }

    def _is_of_columns(self, name: str) -> bool:
        """Return whether the columns say all of a field that separates them."""
        if name not in self.apart:
            return False
        baselines = self.members.get(("baseline",), [])
        return len({row.fields.get(name) for row in baselines}) <= 1

    def _system(self, number: int, values: Identity) -> System:
        rows = self.members[values]
        if not rows:  # no baselines
            return System(self._name(number, values, {}), {})
        facts = {name: rows[0].fields.get(name) for name in self.facts}
        common = {name: value for name, value in self.table.rows[0].fields.items() if name not in self.varying}
        return System(self._name(number, values, facts), common | facts)

    def _name(self, number: int, values: Identity, facts: Mapping[str, Any]) -> str:
        asked = self.query.baseline
        if self.query.relative and number == 0:
            return asked[1] if asked else self._side_name(facts, "baseline")
        if not self.apart:
            others = {row.fields.get(asked[0]) for row in self.table.compared(self.query)} if asked else set()
            if len(others) == 1:
                return cell_text(next(iter(others)))
            return "other" if asked else self._side_name(facts, "results")
        of_names = {*SYSTEM_NAMES, asked[0] if asked else ""}
        texts = (
            cell_text(value) if name in of_names else f"{column_of(name)} {cell_text(value)}"
            for name, value in zip(self.apart, values[1:], strict=True)
        )
        return " ".join(texts)

    def _side_name(self, facts: Mapping[str, Any], otherwise: str) -> str:
        """Return what names one of two sides: the first field that differs between them."""
        if not self.query.relative:
            return otherwise
        sides = [[row for row in self.table.rows if self.query.is_baseline(row) is side] for side in (True, False)]
        for name in SYSTEM_NAMES:
            values = [{row.fields.get(name) for row in rows} for rows in sides]
            if name in facts and all(len(each) == 1 and None not in each for each in values) and values[0] != values[1]:
                return cell_text(facts[name])
        return otherwise

    @property
    def _named(self) -> set[str]:
        """The fields that say which systems are compared."""
        return {SITE, *([self.query.baseline[0]] if self.query.baseline else [])}

    def _lines(self, keys: Sequence[str]) -> list[Line]:
        found: dict[Identity, dict[int, RepeatGroup]] = defaultdict(dict)
        many = self.query.relative and not self.apart  # systems as rows: each pair has a line
        for number, rows in enumerate(self.members.values()):
            for row in rows:
                found[self._line_of(row, number, many)][number] = row
        if many:
            for row in self.table.compared(self.query):
                if row.baseline is not None:
                    found[self._line_of(row, 1, many)][0] = row.baseline
            paired = {id(row.baseline) for row in self.table.rows}
            found = {
                identity: cells
                for identity, cells in found.items()
                if len(cells) > 1 or 1 in cells or id(cells[0]) not in paired
            }
        return [Line(self._key_texts(cells, keys), cells) for cells in found.values()]

    def _line_of(self, row: RepeatGroup, number: int, many: bool) -> Identity:
        identity = self._identity(row, self.apart, self.facts)
        return (*identity, id(row)) if many and number else identity

    def _key_texts(self, cells: Mapping[int, RepeatGroup], keys: Sequence[str]) -> tuple[str, ...]:
        """Return the texts of a line: both, if its baseline has another value."""
        texts = []
        for name in keys:
            numbers = sorted(cells)
            if self.query.relative and name in self.apart and 0 in cells:
                numbers = [0]  # the columns have the others
            elif self.many and name in self._named and len(cells) > 1:
                numbers = [1]  # the column of the baselines has theirs
            rows = [cells[number] for number in numbers]
            texts.append(" / ".join(dict.fromkeys(cell_text(row.fields.get(name)) for row in rows)))
        return tuple(texts)

    def _add_failed(self, lines: list[Line], keys: Sequence[str], failed: Iterable[Observation]) -> None:
        """Put runs that ended otherwise where their numbers would be."""
        for result in failed:
            number = self._system_of(result)
            if number is None or not self._belongs(result):
                continue
            texts = tuple(cell_text(result.fields.get(name)) for name in keys)
            free = [
                name not in (EXECUTION,) and not (follows_devices(name) and name not in (DEVICES, BATCH))
                for name in keys
            ]
            line = next((each for each in lines if _equal(each.keys, texts, free)), None)
            if line is None:
                line = Line(texts)
                lines.append(line)
            if number not in line.cells:
                line.failed[number] = str(result.fields[_STATE])

    def _belongs(self, result: Observation) -> bool:
        """Return whether a run that did not complete differs from this table only in what separates its rows."""
        group, own = self.table.group, result.group
        if (group.identity, group.task, group.source) != (own.identity, own.task, own.source):
            return False
        first = self.table.rows[0].fields
        aside = {*self.varying, *FIELDS, EXECUTION}
        return all(result.fields.get(name) == value for name, value in first.items() if name not in aside)

    def _system_of(self, result: Observation) -> int | None:
        if self.query.relative and self.query.is_baseline(result):
            return 0
        identity = ("other", *(result.fields.get(name) for name in self.apart))
        return list(self.members).index(identity) if identity in self.members else None


def _is_of_system(name: str) -> bool:
    return name in PLATFORM and not _may_follow(name)


def _may_follow(name: str) -> bool:
    return follows_devices(name) or name == EXECUTION


def _differ(rows: Iterable[RepeatGroup], name: str) -> bool:
    return len({row.fields.get(name) for row in rows}) > 1


def _rank(name: str) -> tuple[int, str]:
    return SYSTEM_NAMES.index(name) if name in SYSTEM_NAMES else len(SYSTEM_NAMES), name


def _values(row: RepeatGroup, names: Iterable[str]) -> Identity:
    return tuple(row.fields.get(name) for name in names)


def _equal(first: Sequence[str], second: Sequence[str], counted: Sequence[bool]) -> bool:
    return all(a == b for a, b, counts in zip(first, second, counted, strict=True) if counts)


def _number(text: str) -> Any:
    """Return the number that a text of a key begins with, for the order of lines, or the text."""
    first = text.split(" ")[0]
    try:
        return float(first)
    except ValueError:
        return text


def _following(keys: Sequence[str], lines: Sequence[Line]) -> dict[str, Following]:
    """Return what the name of a system decides among these keys, and what the number of devices does.

    These need no columns: they separate no lines that are not separate anyway.
    """
    following: dict[str, Following] = {}
    system = next((name for name in SYSTEM_NAMES if name in keys), "")
    left = [name for name in keys if name not in (system, DEVICES, BATCH)]
    for leader, may_follow in ((system, _is_of_system), (DEVICES, _may_follow)):
        if leader not in keys:
            continue
        decided = {name: texts for name in left if may_follow(name) and (texts := _decided(keys, lines, leader, name))}
        left = [name for name in left if name not in decided]
        values = {text for texts in decided.values() for text in texts}
        for value in sorted(values, key=lambda text: sort_key(_number(text))):
            texts_of_value = {name: texts[value] for name, texts in decided.items() if value in texts}
            following.setdefault(leader, {})[value] = texts_of_value
    return following


def _agrees(line: Line, keys: Sequence[str], following: Mapping[str, Following]) -> bool:
    """Return whether a line of failed runs has what its keys decide in others; else it would seem to be one of these.

    Ranks say only in the end where they ran.
    """
    texts = dict(zip(keys, line.keys, strict=True))
    return all(
        texts[name] == text
        for leader, values in following.items()
        for name, text in values.get(texts[leader], {}).items()
        if name not in _KNOWN_LATE
    )


def _decided(keys: Sequence[str], lines: Sequence[Line], leader: str, name: str) -> dict[str, str]:
    """Return the text of a key by that of another; nothing if there are several for one."""
    first, second = keys.index(leader), keys.index(name)
    texts: dict[str, str] = {}
    for line in lines:
        if line.cells and texts.setdefault(line.keys[first], line.keys[second]) != line.keys[second]:
            return {}
    return texts
