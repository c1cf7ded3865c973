"""What the schema of results says of its metrics and fields: units, directions, roles, and what is private to a site.

`schemas/result-1.2.json` is the only place that states it, in these annotations (JSON Schema ignores them):

| keyword | at | says |
|---|---|---|
| `x-metric` | a metric | label, unit, direction, kinds of run that can have it, rank as a headline, what it needs |
| `x-role` | a field, or an object for all of its fields | setting, platform, condition, identity or outcome |
| `x-private` | a field with texts | which kind of label replaces it in an anonymous report; empty: it is public |
| `x-compare` | a field | which values make results incomparable, and why |
| `default` | a setting | its value in results that lack it |
| `x-usual` | a field | the value that tables do not mention |
| `x-history` | a field | `stated`: speed may change with it; `measured`: it explains a change |
| `x-screening` | a field | `equal`: nodes of a partition should have it in common |
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from sifmark.core.schemas import read_schema

SCHEMA = "result-1.2"
SETTING_PREFIX = "configuration."
MICROBENCHMARK = "microbenchmark"  # a task whose batch size says nothing
KINDS = ("training", "inference", "requests", "generation", "sampling", "serving", MICROBENCHMARK)  # of runs
_MISSING: Any = object()

Document = Mapping[str, Any]


class Direction(StrEnum):
    """Which value of a metric is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"


class Role(StrEnum):
    """What a field of a result is."""

    SETTING = "setting"  # chosen for the experiment: it separates rows, and a baseline has the same value
    PLATFORM = "platform"  # what the experiment ran on: it separates rows, and a baseline may differ
    CONDITION = "condition"  # the state of machine and surroundings: it separates no rows
    IDENTITY = "identity"  # which run, workload and data a result is of
    OUTCOME = "outcome"  # what came of the run


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. Its unit has `{unit}` for the unit that the workload counts, and `{each}` for one of them."""

    name: str
    label: str
    unit: str
    direction: Direction
    kinds: tuple[str, ...]  # of runs that can have a value
    headline: Mapping[str, int]  # its rank among the metrics to name first, by kind of run
    needs: str  # what a run needs to have it, besides its kind; empty for nothing
    description: str

    def unit_of(self, counted: str) -> str:
        """Return the unit in results of a workload that counts, for example, `images`."""
        return self.unit.format(unit=counted, each=singular(counted))


@dataclass(frozen=True, slots=True)
class Comparability:
    """Which values of a field keep results from being compared."""

    why: str
    same: bool = False  # all must be the same
    only: tuple[Any, ...] = ()  # with another value, a result is no measurement
    excepted: tuple[Any, ...] = ()  # with such a value, a result is no measurement

    def excludes(self, value: Any) -> bool:
        """Return whether a result with this value is no measurement of its workload."""
        return bool(self.only and value not in self.only) or (type(value), value) in [
            (type(each), each) for each in self.excepted
        ]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a result: a scalar, or a list or map of scalars."""

    path: str  # dotted, `host.hostname.value`; `[]` stands for the items of a list
    role: Role
    type: str  # of JSON: string, integer, number, boolean; `json` for lists, maps and mixtures
    description: str
    private: str | None = None  # the kind of label that replaces its value; empty if it is public, None if unknown
    compare: Comparability | None = None
    default: Any = _MISSING
    usual: Any = _MISSING
    history: str = ""
    screening: str = ""

    fact: bool = False  # whether it is the value of an object that also has a unit and a reason

    @property
    def column(self) -> str:
        """Its name in tables: the path, without `configuration.` and a fact's `.value`."""
        return (self.path.removesuffix(".value") if self.fact else self.path).removeprefix(SETTING_PREFIX)

    @property
    def is_usual_known(self) -> bool:
        """Whether there is a value that tables need not mention."""
        return self.usual is not _MISSING

    @property
    def has_default(self) -> bool:
        """Whether results that lack it are known to have had a value."""
        return self.default is not _MISSING

    @property
    def repeated(self) -> bool:
        """Whether it is of the items of a list."""
        return "[]" in self.path


def column_of(path: str) -> str:
    """Return the name in tables of the field at a dotted path: `batch_size` for `configuration.batch_size`."""
    return _columns().get(path) or path.removeprefix(SETTING_PREFIX)


def path_of(column: str) -> str:
    """Return the dotted path of a field by its name in tables, or the name itself if no field is called so."""
    if column in _keys_of_configuration():
        return SETTING_PREFIX + column
    return _paths().get(column, column)


def spelled(metric: str, unit: str) -> str:
    """Return a unit as this version spells it: 0.2 wrote `J/images` for `J/image`."""
    rule = metrics().get(metric)
    return singular(unit) if rule and "{each}" in rule.unit else unit


def singular(noun: str) -> str:
    """Return one of what a workload counts: `image` for `images`."""
    return noun.removesuffix("s")


@cache
def metrics() -> Mapping[str, Metric]:
    """Return every metric that the schema names, by name."""
    rules = read_schema(SCHEMA)["properties"]["metrics"]["properties"]
    return {name: _metric(name, rule) for name, rule in rules.items()}


def metric_of(name: str) -> Metric | None:
    """Return a metric by its name in results and tables, phases and epochs among them; None if it is none of ours."""
    parent, _, rest = name.partition(".")
    if parent == "phases":
        return _span(name, f"phase {rest}", "s", Direction.LOWER)
    if parent == "epochs":
        rate = rest.endswith(".throughput")
        label = f"epoch {rest.partition('.')[0]}" + (", throughput" if rate else "")
        return _span(name, label, "{unit}/s" if rate else "s", Direction.HIGHER if rate else Direction.LOWER)
    return metrics().get(name) or metrics().get(parent)  # `time_to_first_step.warm`


def metric_label(name: str) -> str:
    """Return a metric in words, or its name if it is none of ours."""
    metric = metric_of(name)
    return metric.label if metric else name


def direction_of(name: str) -> Direction:
    """Return which value of a metric is better; of one that nothing is known of, none."""
    metric = metric_of(name)
    return metric.direction if metric else Direction.NONE


def headlines(*kinds: str) -> list[str]:
    """Return the metrics to name first of some kinds of runs, the most important one first."""
    ranks = {
        name: [rank for kind, rank in metric.headline.items() if kind in kinds] for name, metric in metrics().items()
    }
    return sorted((name for name, own in ranks.items() if own), key=lambda name: min(ranks[name]))


def rates(*kinds: str) -> list[str]:
    """Return the headlines of which more is better. Runs are ranked by the first that has a value."""
    return [name for name in headlines(*kinds) if direction_of(name) is Direction.HIGHER]


def kind_of(document: Document) -> str:
    """Return the kind of run that a result is of, in the terms of metrics."""
    task: str = document["workload"]["task"]
    if task != "inference":
        return task
    if document["configuration"]["concurrency"]:
        return "requests"
    return "generation" if "prefill_throughput" in document["metrics"] else task


@cache
def fields() -> tuple[Field, ...]:
    """Return every field of a result but its metrics, in the order of the schema."""
    schema = read_schema(SCHEMA)
    return tuple(
        each for name, rule in schema["properties"].items() if name != "metrics" for each in _walk(name, rule, {})
    )


@cache
def paths_with(role: Role) -> tuple[str, ...]:
    """Return the paths of the fields with a role that a result has once."""
    return tuple(each.path for each in fields() if each.role is role and not each.repeated)


@cache
def history_paths(kind: str) -> tuple[str, ...]:
    """Return the paths of what may explain a change of speed: `stated` before a run, or `measured` in it."""
    other = "device_conditions_after." if kind == "stated" else "device_conditions."
    return tuple(each.path for each in fields() if each.history == kind and not each.path.startswith(other))


@cache
def screening_paths() -> tuple[str, ...]:
    """Return the paths of what nodes of a partition should have in common."""
    equal = (each.path for each in fields() if each.screening)
    return tuple(path for path in equal if not path.startswith("device_conditions."))


def _metric(name: str, rule: Mapping[str, Any]) -> Metric:
    facts = rule["x-metric"]
    return Metric(
        name,
        facts["label"],
        facts["unit"],
        Direction(facts["direction"]),
        tuple(facts["kinds"]),
        facts.get("headline", {}),
        facts.get("needs", ""),
        rule["description"],
    )


def _span(name: str, label: str, unit: str, direction: Direction) -> Metric:
    return Metric(name, label, unit, direction, (), {}, "", label)


@cache
def _paths() -> dict[str, str]:
    return {each.column: each.path for each in fields()}


@cache
def _columns() -> dict[str, str]:
    return {each.path: each.column for each in fields()}


@cache
def _keys_of_configuration() -> frozenset[str]:
    return frozenset(read_schema(SCHEMA)["properties"]["configuration"]["properties"])


def _walk(path: str, rule: Mapping[str, Any], inherited: Mapping[str, Any]) -> Iterator[Field]:
    """Yield the fields at and below a place of the schema. Roles and privacy hold for all that is below."""
    rule = _resolved(rule)
    known = {**inherited, **{key: rule[key] for key in _INHERITED if key in rule}}
    if "properties" in rule:
        if _is_fact(rule):
            own = {key: rule[key] for key in _OWN if key in rule}
            yield _field(f"{path}.value", {**rule["properties"]["value"], **own}, known, fact=True)
            return
        for name, inner in rule["properties"].items():
            yield from _walk(f"{path}.{name}", inner, known)
    elif "properties" in (items := _resolved(rule.get("items", {}))):
        yield from _walk(f"{path}[]", items, known)
    else:
        yield _field(path, rule, known)


_INHERITED = ("x-role", "x-private")
_OWN = ("description", "x-compare", "default", "x-usual", "x-history", "x-screening")


def _is_fact(rule: Mapping[str, Any]) -> bool:
    """Return whether an object is a value with its unit and the reason if there is none."""
    return "value" in rule["properties"] and set(rule["properties"]) <= {"value", "unit", "reason"}


def _resolved(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule with what it refers to; what it says itself goes first, inner properties among it."""
    for option in rule.get("oneOf", ()):
        if option.get("type") != "null":
            rule = {**option, **{key: value for key, value in rule.items() if key != "oneOf"}}
    if "$ref" not in rule:
        return dict(rule)
    general = _resolved(read_schema(SCHEMA)["$defs"][rule["$ref"].rpartition("/")[2]])
    own = {key: value for key, value in rule.items() if key != "$ref"}
    if "properties" in own and "properties" in general:
        merged = {name: {**general["properties"].get(name, {}), **inner} for name, inner in own["properties"].items()}
        own["properties"] = {**general["properties"], **merged}
    return {**general, **own}


def _field(path: str, rule: Mapping[str, Any], inherited: Mapping[str, Any], fact: bool = False) -> Field:
    if "x-role" not in inherited:
        raise ValueError(f"schemas/{SCHEMA}.json: {path} has no x-role")
    compare = rule.get("x-compare")
    return Field(
        path,
        Role(inherited["x-role"]),
        _type(rule),
        rule.get("description", ""),
        inherited.get("x-private", None if _has_texts(rule) else ""),
        compare
        and Comparability(
            compare["why"], compare.get("same", False), tuple(compare.get("only", ())), tuple(compare.get("except", ()))
        ),
        rule.get("default", _MISSING),
        rule.get("x-usual", _MISSING),
        rule.get("x-history", ""),
        rule.get("x-screening", ""),
        fact,
    )


def _has_texts(rule: Mapping[str, Any]) -> bool:
    """Return whether a value may be or hold a text that the schema does not list."""
    rule = _resolved(rule)
    if "enum" in rule or "const" in rule:
        return False
    inner = [each for key in ("items", "additionalProperties") if isinstance(each := rule.get(key), dict)]
    return "string" in rule.get("type", "string") or any(map(_has_texts, inner))


_OF_PYTHON = {bool: "boolean", str: "string", int: "integer", float: "number"}


def _type(rule: Mapping[str, Any]) -> str:
    """Return the only type of a value besides null, or `json`."""
    if "enum" in rule or "const" in rule:
        types = {_OF_PYTHON[type(value)] for value in rule.get("enum", [rule.get("const")]) if value is not None}
    else:
        types = {rule["type"]} if isinstance(rule.get("type"), str) else set(rule.get("type", ())) - {"null"}
    if types == {"integer", "number"}:
        return "number"
    name = types.pop() if len(types) == 1 else "json"
    return name if name in _OF_PYTHON.values() else "json"
