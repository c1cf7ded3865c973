"""The pages beside the schemas: every field of a JSON schema, in the schema's words."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from sifmark.core import paths

PAGES = ("result-1.2", "card-1.0")
_NOTE = "Made from [{0}.json]({0}.json) by `ci/generate`; a change belongs there."
_LIMITS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "minItems": "at least {} of them"}
_LIMITS |= {"maxItems": "at most {} of them"}

Schema = dict[str, Any]


def pages() -> dict[str, str]:
    """Return the current pages by file name in `schemas/`."""
    return {f"{name}.md": page(name) for name in PAGES}


def page(name: str) -> str:
    """Return the page of `schemas/<name>.json`, in Markdown."""
    schema = json.loads((paths.SCHEMAS / f"{name}.json").read_text())
    examples = sorted(paths.SCHEMAS.glob(f"examples/{name}/*.json"))
    links = ", ".join(f"[{file.stem}](examples/{name}/{file.name})" for file in examples)
    lines = [f"# {schema['title']}", "", prose(schema["description"]), "", _NOTE.format(name)]
    lines += ["", f"Examples, real runs: {links}."] if links else []
    lines += [
        "",
        "The table gives the dotted path of each field; `[]` is each item of a list, `*` any other name.",
        "",
    ]
    lines += _table("", schema)
    for path, part in _parts("", schema):
        lines += _section("##", path, part, path)
    lines += ["## Definitions", "", "Shapes that occur more than once, and choices.", ""]
    for title, definition in schema["$defs"].items():
        lines += _section("###", title, definition, "", f"{title}.")
        for path, part in _parts("", definition):
            lines += _section("####", f"{title}.{path}", part, path, f"{title}.")
    return "\n".join(lines).rstrip() + "\n"


def fields(schema: Schema) -> set[str]:
    """Return every dotted path that the schema names; references are followed."""
    return set(_paths("", schema, schema["$defs"]))


def prose(text: str) -> str:
    """Return a text escaped for Markdown, also in a table; only `code` keeps its meaning."""
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(code(piece[1:-1]) if at % 2 else _escaped(piece) for at, piece in enumerate(pieces))


def code(text: str) -> str:
    """Return a text as a code span, also for a table."""
    fence = "``" if "`" in text else "`"
    blank = " " if fence == "``" else ""
    return f"{fence}{blank}{text}{blank}{fence}".replace("|", r"\|")


def _escaped(text: str) -> str:
    text = re.sub(r"([\\`*\[\]|])", r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)


def _section(level: str, heading: str, schema: Schema, path: str, within: str = "") -> list[str]:
    described = prose(schema["description"])
    lines = [f"{level} {heading}", "", described if described.endswith(".") else f"{described}.", ""]
    lines += _table(path, schema, within) if _properties(schema) else [f"{_type(schema)}.", ""]
    return lines + [line for rule in _conditions(schema) for line in (rule, "")]


def _table(path: str, schema: Schema, within: str = "") -> list[str]:
    """Return a row for each property: its path, its type, whether it may be missing, its meaning."""
    lines = ["| field | type | meaning |", "|---|---|---|"]
    for name, inner in _properties(schema).items():
        optional = "" if name in schema.get("required", []) or name == "*" else ", optional"
        where = _joined(path, name)
        kind = _type(inner, within + where)
        lines.append(f"| {code(where)} | {kind}{optional} | {prose(inner['description'])} |")
    return [*lines, ""]


def _properties(schema: Schema) -> dict[str, Schema]:
    foreign = schema.get("additionalProperties")
    return {**schema.get("properties", {}), **({"*": foreign} if isinstance(foreign, dict) else {})}


def _parts(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the objects inside an object, each with its path, outer ones first."""
    for name, inner in schema.get("properties", {}).items():
        where = _joined(path, name)
        if "items" in inner:
            where, inner = f"{where}[]", inner["items"]
        if "properties" in inner and "$ref" not in inner:
            yield where, inner
            yield from _parts(where, inner)


def _paths(path: str, schema: Schema, definitions: Schema) -> Iterator[str]:
    schema = definitions[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema
    if path:
        yield path
    for name, inner in schema.get("properties", {}).items():
        if inner is not False:
            yield from _paths(_joined(path, name), inner, definitions)
    for inner in [schema["items"]] if "items" in schema else []:
        yield from _paths(f"{path}[]", inner, definitions)
    for inner in schema.get("oneOf", []):
        yield from _paths(path, inner, definitions)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _type(schema: Schema, path: str = "") -> str:
    """Return what a value may be, in words."""
    if "$ref" in schema:
        narrowed = [f"{name} {_values(inner)}" for name, inner in schema.get("properties", {}).items()]
        return ", ".join([_link(schema["$ref"].rsplit("/", 1)[1]), *narrowed])
    if "oneOf" in schema:
        return " or ".join(_type(option, path) for option in schema["oneOf"])
    if "const" in schema or "enum" in schema:
        return _values(schema)
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    nullable = "null" in kinds and len(kinds) > 1
    limits = _limits(schema)
    limits += [f"matches {code(_pattern(schema))}"] if "pattern" in schema else []
    named = [_kind(kind, schema, path) for kind in kinds if not nullable or kind != "null"]
    ending = "" if not nullable else ", or null" if limits else " or null"
    return ", ".join([" or ".join(named), *limits]) + ending


def _values(schema: Schema) -> str:
    """Return the choices, or else the limits, of a schema that may have no type."""
    if "const" in schema or "enum" in schema:
        choices = schema.get("enum", [schema.get("const")])
        return ", ".join(code(json.dumps(value, ensure_ascii=False).strip('"')) for value in choices)
    return ", ".join(_limits(schema))


def _limits(schema: Schema) -> list[str]:
    return [text.format(schema[key]) for key, text in _LIMITS.items() if key in schema]


def _kind(kind: str, schema: Schema, path: str) -> str:
    if kind == "array":
        inner = schema["items"]
        words = _link(f"{path}[]") if "properties" in inner else _type(inner)
        return f"list of ({words})" if " " in words else f"list of {words}"
    if kind == "object" and "properties" in schema and path:
        return _link(path)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])} by name"
    return kind


def _pattern(schema: Schema) -> str:
    """Return a schema's pattern without the guard that keeps Python's `$` from matching before a last newline."""
    return str(schema["pattern"]).removesuffix(r"(?!\n)")


def _link(heading: str) -> str:
    """Return a link to a heading of the page, by the address that GitHub gives a heading."""
    return f"[{heading}](#{re.sub(r'[^a-z0-9_-]', '', heading.lower())})"


def _conditions(schema: Schema) -> list[str]:
    """Return what `if`, `then` and `else` demand, as sentences."""
    if "if" not in schema:
        return []
    present = schema["if"].get("required", [])
    conditions = [f"{code(name)} is there" for name in present]
    conditions += [f"{code(name)} is {_wanted(inner)}" for name, inner in schema["if"].get("properties", {}).items()]
    otherwise = "Elsewhere" if "then" in schema else f"Unless {conditions[0]}"
    cases = {"then": f"Where {' and '.join(conditions)}", "else": otherwise}
    return [" ".join(f"{case}, {_demands(schema[key], present)}." for key, case in cases.items() if key in schema)]


def _wanted(schema: Schema) -> str:
    return code(str(schema["const"])) if "const" in schema else "null"


def _demands(schema: Schema, present: Sequence[str]) -> str:
    needed = [code(name) for name in schema.get("required", []) if name not in present]
    barred = [code(name) for name, inner in schema.get("properties", {}).items() if inner is False]
    demands = [f"there must be {', '.join(needed)}"] if needed else []
    return " and ".join([*demands, *([f"there must be no {', '.join(barred)}"] if barred else [])])
