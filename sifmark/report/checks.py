"""What was checked of each result of a report, and from each result to its image, base, commit and command."""

import json
from collections.abc import Iterator

from sifmark.core.console import align_columns, printable
from sifmark.report.describe import state_text
from sifmark.report.report import Report
from sifmark.report.results import Document
from sifmark.report.runs import Run
from sifmark.results.numbers import format_number
from sifmark.results.warnings import warnings_of

NOTE = "what results say; `sifmark results.trace FILE --image IMAGE` compares it with the image"
_INTRODUCTION = """\
Checks of the results of this report.

schema and rules: the document is as its schema says, and does not contradict itself (sifmark results.validate FILE).
correctness: the code computes what the workload defines; deviations are relative to stored values.
signature: of the result's file, by a key that the site trusts (sifmark results.verify FILE --key KEY).
image: what was seen of it when it ran, and who signed it. sifmark results.trace FILE --image IMAGE proves it.
"""


def checks(report: Report) -> str:
    reasons = {each.result.id: each.reason for each in report.results.excluded}
    parts = [
        _INTRODUCTION,
        *(_result(report, run, reasons.get(run.result.observation.id)) for run in report.runs),
    ]
    if report.results.problems:
        problems = (f"  {printable(text)}\n" for text in report.results.problems)
        parts.append("".join(["Not among the results:\n", *problems]))
    if report.results.duplicates:
        parts.append(f"Copies of results, which were counted once: {report.results.duplicates}\n")
    return "\n".join(parts)


def _result(report: Report, run: Run, left_out: str | None) -> str:
    lines = align_columns([(f"  {name}", printable(text)) for name, text in _checks(report, run, left_out)])
    return "\n".join([printable(run.file), *lines]) + "\n"


def _checks(report: Report, run: Run, left_out: str | None) -> Iterator[tuple[str, str]]:
    document = run.document
    yield "id", document["id"]
    yield "schema and rules", f"valid: result {document['schema_version']}"
    yield "run", f"{run.state}: {run.message}"
    yield "correctness", _correctness(document)
    yield from ((f"  {name}", text) for name, text in _precisions(document))
    yield "steadiness", _steadiness(document)
    yield "signature", _signature(report)
    yield "image", run.image
    yield "image signed by", _signer(document)
    for warning in warnings_of(document):
        yield "warning", warning
    if left_out:
        yield "left out", left_out
    yield "trace", run.trace


def _correctness(document: Document) -> str:
    numerics = document["numerics"]
    run_checks = numerics.get("run_checks", ())  # schema 1.0 has none
    failed = [check["check"] for check in run_checks if check["state"] != "passed"]
    of_run = f"; {len(run_checks)} checks of the run, failed: {', '.join(failed) or 'none'}" if run_checks else ""
    reason = f": {numerics['reason']}" if "reason" in numerics else ""
    return f"{state_text(numerics['state'])}{reason}{of_run}"


def _precisions(document: Document) -> Iterator[tuple[str, str]]:
    for each in document["numerics"]["precisions"]:
        worst, state = each["worst"], state_text(each["state"])
        if worst is None:
            yield each["precision"], state
            continue
        deviation = "none" if worst["deviation"] is None else format_number(worst["deviation"])
        yield (
            each["precision"],
            f"{state}; worst {worst['quantity']}: deviation {deviation}, tolerance {format_number(worst['tolerance'])}",
        )


def _steadiness(document: Document) -> str:
    steadiness = document["steadiness"]
    if steadiness["steady"] is None:
        return f"cannot be decided: {steadiness['reason']}"
    drift = steadiness["drift"]["value"]
    change = "" if drift is None else f": step times changed by {drift:+.2%} over the timed window"
    return f"{'steady' if steadiness['steady'] else 'not steady'}{change}"


def _signature(report: Report) -> str:
    return "by a trusted key" if report.results.signed else "not checked (--require-signature)"


def _signer(document: Document) -> str:
    image = document["provenance"]["image"]
    if image is None:
        return "no image"
    file = image["file"]
    return str(file["signer"] or f"nobody: {file['reason']}")


def traces(report: Report) -> str:
    document = {"note": NOTE, "results": [_trace(run) for run in report.runs]}
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _trace(run: Run) -> Document:
    document = run.document
    image = document["provenance"]["image"]
    return {
        "file": run.file,
        "id": document["id"],
        "schema_version": document["schema_version"],
        "system": run.system,
        "workload": {name: document["workload"][name] for name in ("name", "identity", "task")},
        "state": run.state,
        "started": document["started"],
        "correctness": document["numerics"]["state"],
        "image": _image_record(image) if image else None,
        "software": document["provenance"]["software"],
        "stand_in": document["provenance"]["stand_in"],
        "simulated": document["provenance"]["simulated"],
        "marks": [mark.name for mark in run.marks],
        "command": run.command,
        "trace": run.trace,
        **({"reason": document["provenance"]["reason"]} if image is None else {}),
    }


def _image_record(image: Document) -> Document:
    file = image["file"]
    return {
        "recipe": image["recipe"],
        "image_id": file["identity"],
        "digest": file["digest"],
        "seen_by": file["seen_by"],
        "signed_by": file["signer"],
        "build_key": image["build_key"],
        "lock": image["lock"],
        "base": image["base"],
        "commit": image["revision"],
        "platform": image["platform"],
        "version": image["version"],
        **({"reason": file["reason"]} if "reason" in file else {}),
    }
