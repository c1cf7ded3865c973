"""JSON Schema 2020-12 checks that name the document, the field and the remedy."""

import json
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from sifmark.core import paths
from sifmark.core.errors import UsageError

# Imported where a document has faults: verbs that find nothing to do should not wait for it.
if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError


@cache
def validator(name: str) -> "Draft202012Validator":
    """The validator of `schemas/<name>.json`."""
    from jsonschema import Draft202012Validator

    document = _read(name)
    Draft202012Validator.check_schema(document)
    return Draft202012Validator(document)


@cache
def fast_validator(name: str) -> jsonschema_rs.Draft202012Validator:
    """The same schema for validating in bulk."""
    return jsonschema_rs.Draft202012Validator(_read(name))


def errors_of(schema: str, document: Any) -> Iterator["ValidationError"]:
    """What is wrong with a document. The fast validator passes what is right; on all else jsonschema has the word."""
    if not fast_validator(schema).is_valid(document):
        yield from validator(schema).iter_errors(document)


def check_document(schema: str, document: Any, where: str) -> None:
    """Pass, or raise UsageError that names `where`, the field and what it should be."""
    if errors := list(errors_of(schema, document)):
        from jsonschema.exceptions import best_match

        error = best_match(errors)
        raise UsageError(f"{where}: {explain_error(error)}", remedy_for(error))


def explain_error(error: "ValidationError") -> str:
    """One line: the field by its dotted path, and what is wrong with it."""
    return f"{field_of(error)}: {_shorten(error.message)}"


def remedy_for(error: "ValidationError") -> str:
    """What would make the field right, from the schema's own words."""
    rule = error.schema if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties":
        return f"known keys here: {', '.join(sorted(rule.get('properties', {}))) or 'none'}"
    if error.validator == "enum":
        return f"one of {', '.join(map(str, rule['enum']))}"
    if error.validator == "required":
        return "add the missing key"
    return str(rule.get("description") or f"the schema asks for {error.validator} {error.validator_value!r}")


def field_of(error: "ValidationError") -> str:
    """`base.digests.x86_64` and the like; `the document` for its top level."""
    return ".".join(str(part) for part in error.absolute_path) or "the document"


def known_versions(prefix: str) -> Iterator[str]:
    """Versions of a schema that this installation carries: `1.0` for `schemas/result-1.0.json`."""
    for path in sorted(paths.SCHEMAS.glob(f"{prefix}-*.json")):
        yield path.stem.removeprefix(f"{prefix}-")


def _read(name: str) -> dict[str, Any]:
    return dict(json.loads((paths.SCHEMAS / f"{name}.json").read_text()))


def _shorten(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
