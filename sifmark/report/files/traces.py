"""From each result of a report to its image, base, commit and command, as far as the result itself says."""

import json
from typing import Any

from sifmark.report.content.appendix import AppendixEntry
from sifmark.report.report import Report

Document = dict[str, Any]
NOTE = "what results say; `sifmark results.trace FILE --image IMAGE` compares it with the image"


def traces(report: Report) -> str:
    """Return the traces of all results as JSON."""
    document = {"note": NOTE, "results": [_trace(entry) for entry in report.appendix]}
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _trace(entry: AppendixEntry) -> Document:
    document = entry.result.document
    image = document["provenance"]["image"]
    return {
        "file": entry.file,
        "id": document["id"],
        "schema_version": document["schema_version"],
        "system": entry.system,
        "workload": {name: document["workload"][name] for name in ("name", "identity", "task")},
        "state": entry.state,
        "started": document["started"],
        "correctness": document["numerics"]["state"],
        "image": _image(image) if image else None,
        "software": document["provenance"]["software"],
        "stand_in": document["provenance"]["stand_in"],
        "simulated": document["provenance"]["simulated"],
        "marks": [mark.name for mark in entry.marks],
        "command": entry.command,
        "trace": entry.trace,
        **({"reason": document["provenance"]["reason"]} if image is None else {}),
    }


def _image(image: Document) -> Document:
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
