"""Checks by JSON Schema 2020-12, with errors that name the document, the field and the remedy."""

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from sifmark.core import paths
from sifmark.core.errors import UsageError, nearest_names

# Imported where a document has errors: commands whose documents are valid should not wait for it.
if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

MOST_ERRORS = 100  # of a document, from which the one to name is chosen: a hostile document has millions
# The login of an address: all between its scheme and its last `@`, since a password may hold any character. A digest
# follows an `@` too.
_LOGIN = re.compile(r"(?:^(?![\w.+-]+://)|(?<=://)).*@(?!sha256:[0-9a-f]{64})", re.DOTALL)
_LONGEST_MESSAGE = 300  # characters
_LONGEST_QUOTED = 20_000  # characters of a message in which logins are looked for


@cache
def validator(name: str) -> "Draft202012Validator":
    """Return the validator of `schemas/<name>.json`."""
    from jsonschema import Draft202012Validator

    document = read_schema(name)
    Draft202012Validator.check_schema(document)
    return Draft202012Validator(document)


@cache
def fast_validator(name: str) -> jsonschema_rs.Draft202012Validator:
    """Return a validator of the same schema for validating in bulk."""
    return jsonschema_rs.Draft202012Validator(read_schema(name))


def is_valid(schema: str, document: Any) -> bool:
    """Return whether the fast validator takes a document; False for what it cannot read: half characters, dates."""
    try:
        return fast_validator(schema).is_valid(document)
    except ValueError:
        return False


def errors_of(schema: str, document: Any) -> Iterator["ValidationError"]:
    """Return the errors of a document. The fast validator passes valid ones; jsonschema describes all other cases."""
    if not is_valid(schema, document):
        yield from validator(schema).iter_errors(document)


def check_document(schema: str, document: Any, where: str, code: str = "document-invalid") -> None:
    """Raise UsageError for an invalid document, which names `where`, the field and what is allowed there."""
    if errors := list(islice(errors_of(schema, document), MOST_ERRORS)):
        from jsonschema.exceptions import best_match

        error = best_match(errors)
        raise UsageError(f"{where}: {explain_error(error)}", remedy_for(error), code=code)


def read_toml(path: Path, schema: str) -> dict[str, Any]:
    """Read and check a file of this project. Raises UsageError naming file, key and remedy."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        remedy = "correct the file; `git diff` shows what changed"
        raise UsageError(f"{path}: {error}", remedy, code="document-invalid") from error
    check_document(schema, document, str(path))
    return document


def explain_error(error: "ValidationError") -> str:
    """Return one line: the field by its dotted path, and what is wrong with it."""
    return f"{field_of(error)}: {_shorten(_message_of(error))}"


def without_passwords(text: str) -> str:
    """Return an address without its login."""
    return _LOGIN.sub("***@", text)


def _message_of(error: "ValidationError") -> str:
    """Return what is wrong, without the logins in the values that jsonschema quotes, as `repr` does."""
    message = error.message
    if len(message) > _LONGEST_QUOTED:
        return f"what is there, of {len(message)} characters, does not keep {error.validator!r} of the schema"
    for text in sorted(set(_addresses(error.instance)), key=len, reverse=True):  # one may be a part of another
        message = message.replace(repr(text), repr(without_passwords(text)))
    return message


def _addresses(value: Any) -> Iterator[str]:
    """Yield the texts within a value that may have a login, keys among them."""
    if isinstance(value, str) and "@" in value:
        yield value
    elif isinstance(value, dict | list):
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _addresses(inner)


def remedy_for(error: "ValidationError") -> str:
    """Return what would make the field valid, in the schema's own words."""
    rule = error.schema if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties":
        instance: Any = error.instance
        allowed = rule.get("properties", {})
        return nearest_names(next(key for key in instance if key not in allowed), allowed)
    if error.validator == "enum":
        return f"one of {', '.join(map(str, rule['enum']))}"
    if error.validator == "required":
        return "add the missing key"
    return str(rule.get("description") or f"the schema asks for {error.validator} {error.validator_value!r}")


def field_of(error: "ValidationError") -> str:
    """Return a field such as `base.digests.x86_64`, or `the document` for the top level."""
    return ".".join(without_passwords(str(part)) for part in error.absolute_path) or "the document"


def known_versions(prefix: str) -> Iterator[str]:
    """Return the versions of a schema in this installation: `1.0` for `schemas/result-1.0.json`."""
    for path in sorted(paths.SCHEMAS.glob(f"{prefix}-*.json")):
        yield path.stem.removeprefix(f"{prefix}-")


@cache
def read_schema(name: str) -> dict[str, Any]:
    """Return `schemas/<name>.json`."""
    return dict(json.loads((paths.SCHEMAS / f"{name}.json").read_text()))


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."
