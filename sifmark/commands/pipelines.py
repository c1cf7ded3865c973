"""What CI systems show of a command: a summary of the job, folded parts of its log, and JUnit reports."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sifmark.core.checks import Check
from sifmark.core.console import printable
from sifmark.core.files import write_text
from sifmark.core.junit import junit_xml
from sifmark.core.terminal import status

_SUMMARY = "GITHUB_STEP_SUMMARY"  # the file that GitHub Actions shows as Markdown on the page of a run


def add_summary(title: str, markdown: Callable[[], Iterable[str]]) -> None:
    """Append a section with the lines that `markdown` returns to the summary of a GitHub job; elsewhere do nothing."""
    if path := os.environ.get(_SUMMARY):
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write("\n".join([f"### {title}", "", *markdown(), "", ""]))


@contextmanager
def folded(title: str) -> Iterator[None]:
    """Fold what is logged meanwhile under a title, in the logs of GitHub Actions and GitLab CI.

    Sources: GitHub, workflow commands, "Grouping log lines"; GitLab, "Custom collapsible sections".
    """
    section = re.sub(r"\W+", "_", title)
    if os.environ.get("GITHUB_ACTIONS"):
        status(f"::group::{printable(title)}")
    elif os.environ.get("GITLAB_CI"):
        status(f"\x1b[0Ksection_start:{int(time.time())}:{section}[collapsed=true]\r\x1b[0K{printable(title)}")
    try:
        yield
    finally:
        if os.environ.get("GITHUB_ACTIONS"):
            status("::endgroup::")
        elif os.environ.get("GITLAB_CI"):
            status(f"\x1b[0Ksection_end:{int(time.time())}:{section}\r\x1b[0K")


def write_junit(path: Path, suites: Mapping[str, Sequence[Check]]) -> None:
    """Write checks as a JUnit report, a test suite for each name."""
    write_text(path, junit_xml(suites))
