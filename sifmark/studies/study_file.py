"""Study files: where they are, and each as a document that follows the schema, with the line of each key."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.core import paths
from sifmark.core.errors import UsageError, nearest_names, unknown_name
from sifmark.core.schemas import errors_of, explain_error, read_schema, remedy_for

if TYPE_CHECKING:
    from jsonschema import ValidationError

OWN = Path("studies")  # the site's own, below the working folder
SUFFIX = ".toml"
SCHEMA = "study-1.0"
LENGTHS = frozenset(("steps", "duration", "epochs"))  # of which a run has one
_LINE = re.compile(r"at line (\d+)")
Document = dict[str, Any]
Place = Sequence[str | int]  # of a value in a document
KeyPath = tuple[str | int, ...]  # `("run", 0, "batch_size")` is a key of the first `[[run]]`
_KEY = re.compile(r"""[ \t]*(?:([A-Za-z0-9_-]+)|"((?:\\.|[^"\\\n])*)"|'([^'\n]*)')[ \t]*""")
_SKIPPED = re.compile(r"(?:\s+|#[^\n]*)+")
# The tokens of a value that decide where it ends.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[{]|[\]}]|\n|[^\[\]{}"\'#\n]+',
    re.S,
)


def study_files() -> dict[str, Path]:
    """Return the study files by name. The site's own come first where both have a name."""
    folders = [paths.STUDIES, OWN]
    return {path.stem: path for folder in folders for path in sorted(folder.glob(f"*{SUFFIX}"))}


def study_names() -> tuple[str, ...]:
    """Return the names of the studies that are shipped, and of the site's own."""
    return tuple(sorted(study_files()))


def find_study(name_or_path: str) -> Path:
    """Return the file of a study that is given by its name or path. Raises UsageError if there is none."""
    if name_or_path.endswith(SUFFIX) or "/" in name_or_path:
        path = Path(name_or_path).expanduser()
        if not path.is_file():
            remedy = "see which studies exist: sifmark study.list"
            raise UsageError(f"there is no study file {name_or_path}", remedy, code="file-missing")
        return path
    files = study_files()
    if name_or_path not in files:
        raise unknown_name("study", name_or_path, files)
    return files[name_or_path]


def is_name(text: str) -> bool:
    """Return whether a text may be the name of a study or a system, of which folders, files and jobs have theirs."""
    return re.fullmatch(read_schema(SCHEMA)["$defs"]["name"]["pattern"], text) is not None


def require_name(path: Path) -> None:
    """Raise UsageError if a study cannot have the name of a file."""
    if not is_name(path.stem):
        cause = f"{path}: a study has the name of its file, and {path.stem!r} is none"
        remedy = "rename it: letters, digits, dots, dashes and underscores, at most 64"
        raise UsageError(cause, remedy, code="study-invalid")


@dataclass(frozen=True)
class StudyFile:
    """A study file that follows the schema."""

    path: Path
    document: Document
    lines: "Lines"

    def error(self, cause: str, remedy: str, *places: Place) -> UsageError:
        """Return an error that names the line of the first place that the file has, or of what the last is within."""
        exact = next((place for place in places if tuple(place) in self.lines), places[-1] if places else ())
        return UsageError(f"{self.path}:{self.lines.of(exact)}: {cause}", remedy, code="study-invalid")

    def unknown(self, kind: str, name: str, names: Iterable[str], *places: Place) -> UsageError:
        """Return the error for a name that does not exist, with suggestions."""
        return self.error(f"no {kind} {name!r}", nearest_names(name, names), *places)


def read_study_file(path: Path) -> StudyFile:
    """Read and check a file. Raises UsageError that names file, line, field and remedy."""
    require_name(path)
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
    defaults = document.pop("defaults", {})
    document["run"] = [replaced(defaults, run) for run in document["run"]]
    return file


def replaced(run: Document, changes: Mapping[str, Any]) -> Document:
    """Return a run with changes. A length replaces the lengths that it excludes."""
    others = LENGTHS if LENGTHS & changes.keys() else frozenset()
    return {key: value for key, value in run.items() if key not in others} | dict(changes)


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


class Lines:
    """The line of each table and key of a TOML text, from 1: the parser does not say."""

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = dict(_statements(text))

    def __contains__(self, path: object) -> bool:
        return path in self._lines

    def of(self, path: Iterable[str | int]) -> int:
        """Return the line of a key or table, or of what it is within; 1 for the document."""
        steps = tuple(path)
        while steps and steps not in self._lines:
            steps = steps[:-1]
        return self._lines.get(steps, 1)


def _statements(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Yield the path and line of every table and key of a valid TOML document."""
    counts: dict[KeyPath, int] = {}
    prefix: KeyPath = ()
    at = _skip(text, 0)
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        if text[at] == "[":
            is_array = text.startswith("[[", at)
            keys, at = _dotted(text, at + (2 if is_array else 1))
            prefix = _table(keys, is_array, counts)
            yield prefix, line
            at = text.find("\n", at)
        else:
            keys, at = _dotted(text, at)
            yield prefix + tuple(keys), line
            at = _end_of_value(text, at + 1)
        at = len(text) if at < 0 else _skip(text, at)


def _table(keys: list[str], is_array: bool, counts: dict[KeyPath, int]) -> KeyPath:
    """Return the path of a table, with the index of each array of tables that it is in; count those."""
    path: KeyPath = ()
    for number, key in enumerate(keys, start=1):
        path = (*path, key)
        if is_array and number == len(keys):
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _dotted(text: str, at: int) -> tuple[list[str], int]:
    keys: list[str] = []
    while match := _KEY.match(text, at):
        keys.append(next(part for part in match.groups() if part is not None))
        at = match.end()
        if not text.startswith(".", at):
            break
        at += 1
    return keys, at


def _end_of_value(text: str, at: int) -> int:
    """Return where the line ends on which a value ends, or -1 at the end of the text."""
    depth = 0
    for match in _TOKEN.finditer(text, at):
        piece = match.group()
        if piece == "\n" and depth == 0:
            return match.end()
        depth += (piece in "[{") - (piece in "]}")
    return -1


def _skip(text: str, at: int) -> int:
    match = _SKIPPED.match(text, at)
    return match.end() if match else at
