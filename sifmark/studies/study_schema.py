"""What is wrong with values of a study file by its schema, in plain words, and what may be there instead."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sifmark.core.errors import nearest_names
from sifmark.core.schemas import read_schema, without_passwords

if TYPE_CHECKING:
    from jsonschema import ValidationError

SCHEMA = "study-1.0"
Place = Sequence[str | int]  # of a value in a document
_LONGEST = 80  # characters of a value that is quoted
_CONDITIONS = ("except", "only")  # keys whose lists have keys of their own
_KIND = "kind"  # of a rule: the words for what several keys may be
# How values are called, alone and in a list.
_KINDS = {
    "string": ("a text", "texts"),
    "integer": ("a whole number", "whole numbers"),
    "number": ("a number", "numbers"),
    "boolean": ("a switch", "switches"),
    "array": ("a list", "lists"),
    "object": ("a table", "tables"),
}
_TYPES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"))


class SchemaProblem(NamedTuple):
    """A value that the schema refuses, or a key that it does not know or misses."""

    place: Place
    cause: str
    remedy: str


def problems_of(error: "ValidationError") -> Iterator[SchemaProblem]:
    """Yield what an error of the schema means: every unknown key is a problem of its own."""
    path = tuple(error.absolute_path)
    rule: Any = error.schema
    instance: Any = error.instance
    if error.validator == "additionalProperties":
        for key in (key for key in instance if key not in rule["properties"]):
            where = f" in {_table(path)}" if path else ""
            yield SchemaProblem((*path, key), f"no key {key!r}{where}", nearest_names(key, rule["properties"]))
    elif error.validator == "required":
        key = error.message.split("'")[1]
        table = _table(path) if path else "the file"
        yield SchemaProblem((*path, key), f"{table} has no {key}", _added((*path, key)))
    elif "propertyNames" in error.absolute_schema_path:
        yield SchemaProblem((*path, instance), f"{_toml(instance)} is no name", rule["description"])
    else:
        yield _of_value(error, key_place(path))


def key_place(path: Place) -> Place:
    """Return the place of the key of a table that a value is of, or is within."""
    conditions = [at for at, step in enumerate(path) if step in _CONDITIONS]
    keys = [at for at, step in enumerate(path) if isinstance(step, str)]
    return path[: (conditions or keys[-1:] or [-1])[0] + 1]


def example_of(place: Place) -> str:
    """Return an example of a key as a study file has it; empty for a key that has none."""
    examples = rule_at(place).get("examples", ())
    return f"{place[-1]} = {_toml(examples[0])}" if examples else ""


def _of_value(error: "ValidationError", place: Place) -> SchemaProblem:
    inner = _innermost(error)
    within = tuple(inner.absolute_path)[len(place) :]
    value = _toml(_outer(inner, len(within)))
    table = f"{_table(place[:-1])} " if len(place) > 1 else ""
    subject = f": {_toml(inner.instance)}" if within else ""
    cause = f"{table}{place[-1] if place else 'the file'} = {value}{subject} {_predicate(inner)}"
    return SchemaProblem(place, cause, _unquoted(inner, place) or _described(place))


def _outer(error: "ValidationError", levels: int) -> Any:
    """Return the value that the value of an error is in."""
    outer: Any = error
    instance = error.instance
    while levels > 0 and outer.parent is not None:
        levels -= len(outer.relative_path)
        outer = outer.parent
        instance = outer.instance
    return instance


def _innermost(error: "ValidationError") -> "ValidationError":
    """Return the error of what a value was meant to be, where it may be a value or a list of values."""
    while error.validator == "anyOf" and error.context:
        rules: Any = error.validator_value
        is_list = isinstance(error.instance, list)
        meant = [each for each in error.context if (rules[each.schema_path[0]].get("type") == "array") == is_list]
        meant = [each for each in meant if each.validator != "const" or isinstance(each.instance, str)]
        error = next((each for each in meant if each.validator != "type"), meant[0] if meant else error.context[0])
    return error


def _predicate(error: "ValidationError") -> str:
    rule: Any = error.validator_value
    instance: Any = error.instance
    if error.validator == "uniqueItems":
        twice = next(each for at, each in enumerate(instance) if each in instance[:at])
        return f"has {_toml(twice)} twice"
    if error.validator == "enum":
        return f"is none of {', '.join(map(str, rule))}"
    if error.validator in ("minItems", "minProperties") or instance == "":
        return "is empty"
    return {
        "const": f"is a text other than {_toml(rule)}",
        "minimum": f"is less than {rule}",
        "exclusiveMinimum": f"is not above {rule}",
        "maximum": f"is more than {rule}",
        "maxLength": f"has more than {rule} characters",
        "pattern": "is not written as it has to be",
    }.get(str(error.validator), f"is {_kind_of(instance)}")


def _kind_of(value: object) -> str:
    if isinstance(value, list) and (kinds := {_type_of(each) for each in value}) and len(kinds) == 1:
        return f"a list of {_KINDS[kinds.pop()][1]}" if kinds <= _KINDS.keys() else "a list"
    return _KINDS[kind][0] if (kind := _type_of(value)) else "a date or time"


def _type_of(value: object) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "")


def _unquoted(error: "ValidationError", place: Place) -> str:
    """Return the remedy for a number in quotes."""
    text: Any = error.instance
    if not isinstance(text, str) or not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) or error.validator != "type":
        return ""
    whole = tuple(error.absolute_path) == tuple(place)
    return f"remove the quotes: {f'{place[-1]} = ' * whole}{text}"


def _described(place: Place) -> str:
    """Return what a key may be, what it is for, and an example."""
    rule = rule_at(place)
    if rule.get("type") == "array" and _resolved(rule["items"]).get("type") == "object":
        return f"[[{place[-1]}]]: {rule['description']}"
    words = dict.fromkeys(filter(None, (_expected(rule), rule.get("description"))))
    example = example_of(place)
    return ": ".join(words) + (f"; for example {example}" if example else "")


def _added(place: Place) -> str:
    """Return what to write for a key that is missing, and what it is for."""
    return f"add {example_of(place) or f'[[{place[-1]}]]'}: {rule_at(place)['description']}"


def _expected(rule: Mapping[str, Any]) -> str:
    if _KIND in rule:
        return str(rule[_KIND])
    if "enum" in rule:  # whose description names them
        return ""
    word = _KINDS.get(rule.get("type", ""), ("",))[0]
    if word == "a list":
        return f"a list of {_KINDS[_resolved(rule['items'])['type']][1]}"
    limits = [f" from {rule['minimum']}"] if "minimum" in rule else []
    limits += [f" above {rule['exclusiveMinimum']}"] if "exclusiveMinimum" in rule else []
    limits += [f" to {rule['maximum']}"] if "maximum" in rule else []
    return word + "".join(limits)


def rule_at(place: Place) -> Mapping[str, Any]:
    """Return the rule of the schema for a place in a document, with the words of what it refers to as its kind."""
    rule: Mapping[str, Any] = read_schema(SCHEMA)
    for step in place:
        inner = rule.get("items", {}) if isinstance(step, int) else rule.get("properties", {}).get(step)
        rule = _resolved(inner if inner is not None else rule.get("additionalProperties") or {})
    return rule


def _resolved(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in rule:
        return rule
    target = read_schema(SCHEMA)["$defs"][rule["$ref"].rpartition("/")[2]]
    kind = {_KIND: target["description"]} if "properties" not in target else {}
    return {**target, **rule, **kind}


def _table(path: Place) -> str:
    """Return the header of a table as a study file has it: `[[run]]`, `[variant.small.set]`."""
    place = key_place(path)
    if place[-1] in _CONDITIONS:
        return f"{place[-1]} of {_table(place[:-1])}"
    name = ".".join(str(step) for step in path if isinstance(step, str))
    return f"[[{name}]]" if isinstance(path[-1], int) else f"[{name}]"


def _toml(value: Any) -> str:
    """Return a value as TOML has it, shortened."""
    text = _whole(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _whole(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(without_passwords(value[: 2 * _LONGEST]), ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(map(_whole, value[:_LONGEST]))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_whole(each)}' for key, each in value.items())} }}"
    return str(value)
