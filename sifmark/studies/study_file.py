"""Study files: where they are, and each as a document that follows the schema, with the line of each key."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sifmark.core import paths
from sifmark.core.console import printable
from sifmark.core.errors import UsageError, nearest_names, unknown_name
from sifmark.core.schemas import MOST_ERRORS, errors_of, read_schema
from sifmark.studies.study_schema import SCHEMA, Place, key_place, problems_of

OWN = Path("studies")  # the site's own, below the working folder
SUFFIX = ".toml"
NAMING = ("name", "workload", "task")  # keys by which a run or system has its name
MOST_SHOWN = 20  # problems of a file
LENGTHS = frozenset(("steps", "duration", "epochs"))  # of which a run has one
_LINE = re.compile(r"at line (\d+)")
Document = dict[str, Any]
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
        raise _unknown_study(name_or_path, files)
    return files[name_or_path]


def _unknown_study(name: str, files: Mapping[str, Path]) -> UsageError:
    """Return the error for a study that does not exist, as that of `quick-small`, which folders of a variant have."""
    for whole, path in files.items():
        variant = name.removeprefix(f"{whole}-")
        if variant != name and variant in read_study_file(path).document.get("variant", {}):
            remedy = f"it is a variant of {whole}: {whole} --variant {variant}"
            return UsageError(f"no study {name!r}", remedy, code="unknown-name")
    return unknown_name("study", name, files)


def is_name(text: str) -> bool:
    """Return whether a text may be the name of a study or a system, of which folders, files and jobs have theirs."""
    return re.fullmatch(read_schema(SCHEMA)["$defs"]["name"]["pattern"], text) is not None


def require_name(path: Path) -> None:
    """Raise UsageError if a study cannot have the name of a file."""
    if not is_name(path.stem):
        cause = f"{path}: a study has the name of its file, and {path.stem!r} is none"
        remedy = "rename it: letters, digits, dots, dashes and underscores, at most 64"
        raise UsageError(cause, remedy, code="study-invalid")


class StudyError(UsageError):
    """A problem at a line of a study file."""

    def __init__(self, path: Path, line: int, cause: str, remedy: str, *, code: str) -> None:
        super().__init__(f"{path}:{line}: {printable(cause)}", printable(remedy), code=code)
        self.line = line


@dataclass(frozen=True)
class StudyFile:
    """A study file without the values that the schema refuses, and what is wrong with it as far as it was read."""

    path: Path
    document: Document
    lines: "Lines"
    problems: list[StudyError] = field(default_factory=list)
    refused: set[KeyPath] = field(default_factory=set)  # keys that the document does not have for that, and tables

    def error(self, cause: str, remedy: str, *places: Place) -> StudyError:
        """Return an error that names the line of the first place that the file has, or of what the last is within."""
        exact = next((place for place in places if tuple(place) in self.lines), places[-1] if places else ())
        return StudyError(self.path, self.lines.of(exact), cause, remedy, code="study-invalid")

    @contextmanager
    def checks(self) -> Iterator[None]:
        """Keep the error with which the block ends, so that what follows is checked too."""
        try:
            yield
        except StudyError as problem:
            self.problems.append(problem)

    def is_refused(self, *within: str | int) -> bool:
        """Return whether the schema refuses something of a part of the file: of what refers to it nothing is known."""
        return any(place[: len(within)] == within for place in self.refused)

    def knows_names(self, table: str) -> bool:
        """Return whether it is known how all tables `[[run]]` or `[[system]]` are called."""
        return not any(table in place and place[-1] in (table, *NAMING) for place in self.refused)

    def require_valid(self) -> None:
        """Raise UsageError with all problems, in the order of their lines."""
        problems = sorted({str(each): each for each in self.problems}.values(), key=lambda each: each.line)
        if not problems:
            return
        if len(problems) == 1:
            raise problems[0]
        shown = [f"{each.cause}\n  remedy: {_brief(each.remedy)}" for each in problems[:MOST_SHOWN]]
        count = f"{'at least ' * (len(problems) >= MOST_ERRORS)}{len(problems)}"
        shown += [f"and {len(problems) - MOST_SHOWN} more"] if len(problems) > MOST_SHOWN else []
        cause = "\n".join([f"{self.path} has {count} errors", *shown])
        raise UsageError(cause, "correct them; docs/reference/studies.md has all keys", code="study-invalid")

    def unknown(self, kind: str, name: str, names: Iterable[str], *places: Place) -> StudyError:
        """Return the error for a name that does not exist, with suggestions."""
        return self.error(f"no {kind} {name!r}", nearest_names(name, names), *places)


def read_study_file(path: Path) -> StudyFile:
    """Read a file, with what is wrong with it by the schema. Raises UsageError for one that is no TOML."""
    require_name(path)
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
        str(document)  # fails for a number of so many digits that no message can have it
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", "name a readable TOML file", code="file-unreadable") from error
    except (ValueError, RecursionError) as error:
        line = _LINE.search(str(error))
        cause = f"{path}:{line[1] if line else 1}: {error}"
        raise UsageError(cause, "correct the syntax of TOML there", code="study-invalid") from error
    file = StudyFile(path, document, Lines(text))
    for problem in islice(chain.from_iterable(map(problems_of, errors_of(SCHEMA, document))), MOST_ERRORS):
        file.problems.append(file.error(problem.cause, problem.remedy, problem.place))
        file.refused.add(tuple(key_place(problem.place)))
    if len(file.problems) == MOST_ERRORS:  # what is left may be anything
        file.require_valid()
    for place in file.refused:
        _remove(document, place)
    defaults = document.pop("defaults", {})
    document["run"] = [replaced(defaults, run) for run in document.get("run", ())]
    return file


def _remove(document: Any, place: KeyPath) -> None:
    """Remove a key from a document, if it is there."""
    *parents, key = place
    for step in parents:
        document = document.get(step) if isinstance(document, dict) else document[step] if document else None
    if isinstance(document, dict):
        document.pop(key, None)


def _brief(remedy: str) -> str:
    """Return a remedy without the names that are known, if it has some that are near."""
    near, rest, _ = remedy.partition("? known: ")
    return f"{near}?" if rest else remedy


def replaced(run: Document, changes: Mapping[str, Any]) -> Document:
    """Return a run with changes. A length replaces the lengths that it excludes."""
    others = LENGTHS if LENGTHS & changes.keys() else frozenset()
    return {key: value for key, value in run.items() if key not in others} | dict(changes)


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
