"""Documents made from the result schema itself, so that they follow it: whole ones, bare ones, and broken ones."""

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from sifmark.core import paths

SCHEMA = json.loads((paths.SCHEMAS / "result-1.1.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)

# One of these matches each pattern of the schema; a new pattern needs a new word.
WORDS = ["a", "sha256:" + "0f" * 32, "4d20c7dc-dbcb-4ee8-a7d9-1e864f5d61aa", "2024-02-29T12:00:00.123Z"]
# What a careless pattern takes in Python, though not in ECMA: a digit of another script, a newline at the end.
QUIRKS = ["٢024-02-29T12:00:00.123Z", "2024-02-29T12:00:00.123Z\n", "sha256:" + "0f" * 32 + "\n", "a\n"]
VALUES: list[Any] = [None, True, False, 0, 1, -1, 1.0, 0.5, 10**18, "", "1.0", [], {}]
# Keywords that ask something of a value themselves; the others only point to schemas that do.
RULES = {"type", "const", "enum", "pattern", "minimum", "maximum", "exclusiveMinimum", "minLength", "minItems",
         "maxItems", "required", "additionalProperties", "oneOf"}  # fmt: skip

Path = tuple[Any, ...]


def whole() -> dict[str, Any]:
    """A document with every property that may stand together, and no null where a value may be."""
    return dict(json.loads(_text(True)))


def bare() -> dict[str, Any]:
    """A document with what is required only, and null wherever that is allowed."""
    return dict(json.loads(_text(False)))


def unseen() -> dict[str, Any]:
    """The whole one, of an image whose file nobody saw."""
    nothing = {**dict.fromkeys(("identity", "digest", "signer", "seen_by")), "reason": "a reason"}
    document = whole()
    document["provenance"]["image"]["file"] = nothing
    return document


def result(**changes: Any) -> dict[str, Any]:
    """A whole, completed, comparable document with values at dotted paths; `configuration__precision="bf16"`."""
    document = whole()
    document["status"] |= {"state": "completed", "exit_code": 0, "phase": "steady"}
    document["configuration"]["smoke"] = False
    document["provenance"] |= {"stand_in": False, "simulated": False}
    document["steadiness"]["steady"] = True
    proof: dict[str, Any] = {"precision": "fp32", "state": "passed", "worst": None, "mismatched": []}
    document["numerics"] = {"state": "passed", "precisions": [proof]}
    for name, value in changes.items():
        put(document, tuple(name.split("__")), value)
    return document


def mutations(document: dict[str, Any], within: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The document with a place `within` it changed: values replaced by others, keys dropped, foreign keys added."""
    for path, value, rules in _places(document, [SCHEMA], ()):
        if path[: len(within)] != within:
            continue
        words = [*WORDS, *QUIRKS] if isinstance(value, str) else WORDS[:1]
        for other in [*VALUES, *words, *_at_the_edge(rules)]:
            if json.dumps(other) != json.dumps(value):
                yield path, changed(document, path, other)
        if isinstance(value, dict):
            for key in value:
                yield (*path, key), changed(document, path, {k: v for k, v in value.items() if k != key})
            unused = {key for rule in rules for key in rule.get("properties", {})} - set(value)
            for key in ["unknown", "Not a name", "a\n", *sorted(unused)]:
                for fill in (None, "text", 1, {"value": 1, "unit": "s"}):
                    yield (*path, key), changed(document, path, {**value, key: fill})


def judge_of_changes(base: Any, schema: Any) -> Draft202012Validator:
    """jsonschema's validator for copies of a valid document that share with it what did not change.

    A part that was valid under a rule once is not looked at again: a tenth of the work.
    """
    alive = {id(node): node for node in _nodes(base)}
    passed: set[tuple[int, int, str]] = set()

    def once(keyword: str) -> Any:
        really = Draft202012Validator.VALIDATORS[keyword]

        def check(validator: Any, rule: Any, instance: Any, parent: Any) -> Iterator[ValidationError]:
            key = (id(instance), id(parent)) if id(instance) in alive else None
            if key is None or (*key, keyword) not in passed:
                clean = True
                for error in really(validator, rule, instance, parent) or ():
                    clean = False
                    yield error
                if clean and key is not None:
                    passed.add((*key, keyword))

        return check

    keywords = ("$ref", "properties", "items", "oneOf", "allOf", "additionalProperties")
    return extend(Draft202012Validator, {keyword: once(keyword) for keyword in keywords})(schema)


def _nodes(value: Any) -> Iterator[Any]:
    """Objects and arrays of a document."""
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _nodes(inner)


def rules_of(schema: Any = SCHEMA) -> Iterator[tuple[int, str]]:
    """Every rule of the schema, by the identity of the schema it stands in and its keyword."""
    if isinstance(schema, dict):
        closed = [keyword for keyword in schema if keyword in RULES and not isinstance(schema[keyword], dict)]
        yield from ((id(schema), keyword) for keyword in closed)
        for keyword, inner in schema.items():
            if keyword in ("properties", "$defs"):
                for each in inner.values():
                    yield from rules_of(each)
            elif keyword != "if":
                for each in inner if isinstance(inner, list) else [inner]:
                    yield from rules_of(each)


def put(document: Any, path: Path, value: Any) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


@cache
def _text(whole: bool) -> str:
    return json.dumps(_mended(_sample(SCHEMA, whole)))


def _sample(schema: Any, whole: bool) -> Any:
    schema = _resolved(schema)
    if "const" in schema or "enum" in schema:
        return schema.get("const", (schema.get("enum") or [None])[0])
    if "oneOf" in schema:
        options = [_sample(option, whole) for option in schema["oneOf"]]
        return options[0] if whole else next((option for option in options if option is None), options[0])
    kinds = schema.get("type", "object")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "null" in kinds and not whole:
        return None
    return _of_kind(kinds[0], schema, whole)


def _of_kind(kind: str, schema: dict[str, Any], whole: bool) -> Any:
    if kind == "object":
        required = schema.get("required", [])
        wanted = dict.fromkeys([*required, *(schema.get("properties", {}) if whole else [])])
        foreign = schema.get("additionalProperties")
        made = {key: _sample(schema.get("properties", {}).get(key, foreign), whole) for key in wanted}
        return made | ({"a_name": _sample(foreign, whole)} if whole and isinstance(foreign, dict) else {})
    if kind == "array":
        count = schema.get("minItems", int(whole))
        return [_sample(schema["items"], whole) for _ in range(count)]
    if kind == "string":
        return next(word for word in WORDS if re.search(schema.get("pattern", ""), word))
    if kind == "boolean":
        return False
    return max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)


def _mended(document: dict[str, Any]) -> dict[str, Any]:
    """Without what may not stand beside the rest, and with the reasons for what is missing."""
    for _ in range(3):
        for error in [leaf for error_above in VALIDATOR.iter_errors(document) for leaf in _leaves(error_above)]:
            path = tuple(error.absolute_path)
            if error.validator is None:  # a schema that is `false`: what our schemas forbid is a reason beside a value
                _at(document, path).pop("reason", None)
            elif error.validator == "required":
                missing = next(
                    key for key in cast("list[str]", error.validator_value) if key not in _at(document, path)
                )
                put(document, (*path, missing), "a reason")
    VALIDATOR.validate(document)
    return document


def _leaves(error: ValidationError) -> Iterator[ValidationError]:
    """What is wrong within the alternatives, where none of them fits."""
    if error.context:
        yield from (leaf for inner in error.context for leaf in _leaves(inner))
    else:
        yield error


def _places(value: Any, schemas: list[Any], path: Path) -> Iterator[tuple[Path, Any, list[dict[str, Any]]]]:
    rules = [rule for schema in schemas for rule in _alternatives(schema)]
    yield path, value, rules
    if isinstance(value, dict):
        counts: Counter[str] = Counter()
        for key, item in value.items():
            inner = [r["properties"][key] for r in rules if key in r.get("properties", {})]
            foreign = [r["additionalProperties"] for r in rules if isinstance(r.get("additionalProperties"), dict)]
            shared = str([schema.get("$ref") for schema in inner or foreign])
            counts[shared] += "$defs" in shared
            if counts[shared] <= 3:  # there are dozens of metrics, and all follow one definition
                yield from _places(item, inner or foreign, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:1]):
            yield from _places(item, [r["items"] for r in rules if "items" in r], (*path, index))


def _alternatives(schema: Any) -> Iterator[dict[str, Any]]:
    schema = _resolved(schema)
    yield schema
    for option in schema.get("oneOf", []):
        yield from _alternatives(option)


def _at_the_edge(rules: list[dict[str, Any]]) -> Iterator[Any]:
    """Values on both sides of every limit."""
    for rule in rules:
        yield from rule.get("enum", [])
        for keyword in ("minimum", "maximum", "exclusiveMinimum"):
            if keyword in rule:
                yield from (rule[keyword] + step for step in (-1, -0.5, 0, 0.5, 1))
        if "maxItems" in rule:
            yield from ([_sample(rule["items"], whole=True)] * (rule["maxItems"] + step) for step in (0, 1))


def _resolved(schema: Any) -> dict[str, Any]:
    return SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def changed(document: dict[str, Any], path: Path, value: Any) -> Any:
    """The document with another value at one place; the one that was given stays as it is."""
    if not path:
        return value
    other = copy.copy(document)
    other[path[0]] = changed(document[path[0]], path[1:], value)
    return other


def _at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document
