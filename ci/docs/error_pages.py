"""The page of error codes, made from the table of codes."""

from sifmark.core.error_codes import CODES

_HEAD = """# Error codes

A command that fails prints `error: CAUSE [CODE]` and a remedy on stderr. With `--json`, if nothing has been printed on
stdout yet, it also prints `{"error": {"code": ..., "cause": ..., "remedy": ...}}` there. Programs should match codes:
they stay the same when a text changes.

Made from `sifmark/core/error_codes.py` by `ci/generate`; a change belongs there.

| code | meaning |
|---|---|
"""


def error_page() -> str:
    """Return the page that lists all codes, in Markdown."""
    return _HEAD + "".join(f"| `{code}` | {meaning} |\n" for code, meaning in CODES.items())
