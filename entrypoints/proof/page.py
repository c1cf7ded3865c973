"""The page of a proof: one file without scripts, that says what held and what did not."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import Any, Iterator, Mapping, Sequence

from entrypoints.proof.finding import CLAIMS, FAILED, HELD, NOT_PROVABLE, NOT_RUN, STATES

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1, h2 { line-height: 1.2 } h2 { margin: 2.5rem 0 .5rem; font-size: 1.15rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884 }
td:last-child { overflow-wrap: anywhere }
.failed { color: #c5221f; font-weight: 600 } .held { color: #188038 }
@media (prefers-color-scheme: dark) { .failed { color: #f28b82 } .held { color: #81c995 } }
@media print { a { color: inherit } }
"""
POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
WORDS = {HELD: "held", FAILED: "failed", NOT_PROVABLE: "not provable here", NOT_RUN: "not run"}


def render(proof: Mapping[str, Any]) -> str:
    """Return the page of a proof as HTML. Every text of the proof is escaped."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    device = proof["device"] or {"name": "no device", "kind": "unknown"}
    title = f"First light of {device['name']}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY.format(digest))}">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_summary(proof))}</p>",
        *_facts(proof, device),
        *_claims(proof["findings"]),
        *_doctor(proof["doctor"]),
        *_experiments(proof["experiments"]),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _summary(proof: Mapping[str, Any]) -> str:
    states = [finding["state"] for finding in proof["findings"]]
    counts = ", ".join(f"{states.count(state)} {WORDS[state]}" for state in STATES if state in states)
    return f"{counts or 'Nothing was tried'}." + ("" if proof["finished"] else " The proof has not ended.")


def _facts(proof: Mapping[str, Any], device: Mapping[str, Any]) -> Iterator[str]:
    image = proof["image"]
    facts = {
        "device": f"{device['name']} ({device['kind']})",
        "image": f"{image['recipe']}, {image['build_key']}" if image else "none: run outside of an image",
        "software": ", ".join(f"{name} {version}" for name, version in proof["software"].items() if version),
        "started": proof["started"],
        "finished": proof["finished"] or "not yet",
    }
    yield from _table(("", ""), facts.items())


def _claims(findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for claim, sentence in CLAIMS.items():
        own = sorted(
            (each for each in findings if each["claim"] == claim), key=lambda each: STATES.index(each["state"])
        )
        if not own:
            continue
        yield f"<h2>{escape(sentence)}</h2>"
        yield from _table(
            ("subject", "", "what was seen"), ((each["subject"], each["state"], each["text"]) for each in own)
        )


def _doctor(checks: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    if checks:
        yield "<h2>What the doctor says of this host</h2>"
        rows = ((check["name"], check["status"], check["detail"]) for check in checks)
        yield from _table(("check", "", "detail"), rows)


def _experiments(experiments: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not experiments:
        return
    yield "<h2>Experiments</h2><p>Results are in <code>results/</code>, messages of the runs in <code>logs/</code>.</p>"
    rows = ((each["name"], f"{each['seconds']:.1f} s", _commands(each)) for each in experiments)
    yield from _table(("experiment", "time", "arguments → exit code"), rows)


def _commands(experiment: Mapping[str, Any]) -> str:
    runs = zip(experiment["commands"], experiment["exit_codes"])
    return "; ".join(f"{' '.join(words)} → {code}" for words, code in runs)


def _table(header: Sequence[str], rows: Any) -> Iterator[str]:
    yield "<table>"
    if any(header):
        yield "<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in header) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(map(_cell, row)) + "</tr>"
    yield "</table>"


def _cell(text: str) -> str:
    shown = escape(WORDS.get(text, text))
    return f'<td class="{text}">{shown}</td>' if text in (HELD, FAILED) else f"<td>{shown}</td>"
