"""Result files on the host: found, read with suspicion, checked against the schema they name, summarised."""

import glob
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sifmark.console import say, show
from sifmark.errors import SifmarkError, UsageError
from sifmark.schema import explain, known_versions, validator

_KIND = "result"


def validate_results(path: str) -> None:
    """Say of each result whether it is valid. Raises SifmarkError when one is not, UsageError when there is none."""
    files = find_results(path)
    bad = 0
    for file in files:
        problems = problems_of(file)
        bad += bool(problems)
        show(f"{'invalid' if problems else 'valid'}  {file}")
        for problem in problems:
            show(f"  {problem}")
    if bad:
        raise SifmarkError(f"{bad} of {len(files)} results are not valid", "the lines above name each field")
    say(f"{len(files)} valid")


def show_results(path: str) -> None:
    """Print a summary of each result that reads. Raises SifmarkError for one that does not."""
    for file in find_results(path):
        for document in read_documents(file):
            if problems := document_problems(document):
                raise SifmarkError(f"{file}: {problems[0]}", f"see all that is wrong: inv validate {file}")
            show("\n".join(summary(document)))


def find_results(path: str) -> list[Path]:
    """The result files that a file, a folder or a glob means. Raises UsageError for none."""
    named = Path(path)
    if named.is_dir():
        found = sorted([*named.rglob("*.json"), *named.rglob("*.jsonl")])
    elif named.exists():
        found = [named]
    else:
        found = sorted(Path(name) for name in glob.glob(path, recursive=True))  # noqa: PTH207 - the user's glob may be absolute
    if not found:
        raise UsageError(f"no result at {path}", "name a .json or .jsonl file, a folder with some, or a quoted glob")
    return found


def read_documents(file: Path) -> Iterator[dict[str, Any]]:
    """The documents of a file: one in `.json`, one per line in `.jsonl`. Raises SifmarkError naming the place."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SifmarkError(f"{file}: {error}", "is it a result, and may you read it?") from error
    parts = [line for line in text.splitlines() if line.strip()] if file.suffix == ".jsonl" else [text]
    for number, part in enumerate(parts, start=1):
        try:
            document = json.loads(part, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
        except (ValueError, RecursionError) as error:
            raise SifmarkError(f"{file}: document {number} is not JSON: {error}", "run the workload again") from error
        if not isinstance(document, dict):
            raise SifmarkError(f"{file}: document {number} is not an object", "name a file that an image wrote")
        yield document


def problems_of(file: Path) -> list[str]:
    """What is wrong with a file, one line per field; empty when all its documents are valid."""
    try:
        return [problem for document in read_documents(file) for problem in document_problems(document)]
    except SifmarkError as error:
        return [error.cause]


def document_problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with a document, checked against exactly the schema version it names."""
    version = document.get("schema_version")
    known = list(known_versions(_KIND))
    if version not in known:
        return [f"schema_version: {version!r} is not one that this sifmark reads ({', '.join(known)})"]
    errors = sorted(validator(f"{_KIND}-{version}").iter_errors(document), key=lambda error: list(map(str, error.path)))
    return [explain(error) for error in errors]


def summary(document: dict[str, Any]) -> list[str]:
    """A result in a few lines for people."""
    workload, configuration, status = document["workload"], document["configuration"], document["status"]
    image = document["provenance"]["image"]
    lines = [
        f"{workload['title']}, {workload['task']}, {configuration['precision']}, batch {configuration['batch_size']}",
        f"  status      {status['state']}" + (f": {status['message']}" if status.get("message") else ""),
        f"  on          {document['accelerator']['name']}, host {document['host']['hostname']['value']}",
        f"  image       {image['recipe'] + ', build ' + image['build_key'][7:19] if image else 'none: run outside'}",
    ]
    if document["provenance"]["stand_in"]:
        lines.append("  base        a stand-in, not the vendor's: do not compare with results from real bases")
    for name, metric in document["metrics"].items():
        lines.append(f"  {name:<26} {_said(metric)}")
    return lines


def _said(metric: dict[str, Any]) -> str:
    if metric["value"] is None:
        return f"- ({metric['reason']})"
    return f"{metric['value']:,.4g} {metric['unit']}"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"key {twice!r} occurs twice")
    return document
