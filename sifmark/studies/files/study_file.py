"""A study file as it was read: its document, checked by the schema, with the line of each part."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.core.errors import UsageError, nearest_names
from sifmark.core.schemas import errors_of, explain_error, remedy_for
from sifmark.studies.files.lines import Lines

if TYPE_CHECKING:
    from jsonschema import ValidationError

SCHEMA = "study-1.0"
_LINE = re.compile(r"at line (\d+)")
Document = dict[str, Any]
Place = Sequence[str | int]  # of a value in a document


@dataclass(frozen=True)
class StudyFile:
    """A study file that follows the schema."""

    path: Path
    document: Document
    lines: Lines

    def error(self, cause: str, remedy: str, *places: Place) -> UsageError:
        """Return an error that names the line of the first place that the file has, or of what the last is within."""
        exact = next((place for place in places if tuple(place) in self.lines), places[-1] if places else ())
        return UsageError(f"{self.path}:{self.lines.of(exact)}: {cause}", remedy, code="study-invalid")

    def unknown(self, kind: str, name: str, names: Iterable[str], *places: Place) -> UsageError:
        """Return the error for a name that does not exist, with suggestions."""
        return self.error(f"no {kind} {name!r}", nearest_names(name, names), *places)


def read_study_file(path: Path) -> StudyFile:
    """Read and check a file. Raises UsageError that names file, line, field and remedy."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", "name a readable TOML file", code="file-unreadable") from error
    except tomllib.TOMLDecodeError as error:
        line = _LINE.search(str(error))
        cause = f"{path}:{line[1] if line else 1}: {error}"
        raise UsageError(cause, "correct the syntax of TOML there", code="study-invalid") from error
    file = StudyFile(path, document, Lines(text))
    errors = sorted(errors_of(SCHEMA, document), key=lambda each: file.lines.of(each.absolute_path))
    if errors:
        raise _schema_error(file, errors[0])
    return file


def _schema_error(file: StudyFile, error: "ValidationError") -> UsageError:
    place: tuple[str | int, ...] = tuple(error.absolute_path)
    rule: Any = error.schema
    if error.validator == "additionalProperties":
        properties = rule["properties"]
        instance: Any = error.instance
        key = next(key for key in instance if key not in properties)
        where = f"{_name(place)}: " if place else ""
        return file.error(f"{where}no key {key!r}", nearest_names(key, properties), (*place, key))
    if error.validator == "anyOf":  # a value or a list of values
        described = rule["description"]
        return file.error(f"{_name(place)}: {error.instance!r:.80} is not what is expected", described, place)
    return file.error(explain_error(error), remedy_for(error), place)


def _name(place: Place) -> str:
    return ".".join(map(str, place))
