"""The live view on a real terminal: a pseudo-terminal with the real CPU image, its results, and what is left behind."""

import fcntl
import json
import os
import pty
import re
import struct
import termios
import threading
import time
from pathlib import Path

import pytest
from documents import problems_of
from images.sites import INV, Site, make_site

from sifmark.results.load import document_problems

RUN = ("run", "image_compression-cpu", "--", "--skip-numerics", "--warmup-steps", "1", "--batch-size", "4")
GRAPHS = re.compile(r"throughput +[▁▂▃▄▅▆▇█ ]+  [\d,.]+ images/s")
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor


class Screen:
    """A command on a terminal of its own: what it writes there, and how it ended."""

    def __init__(self, site: Site, *words: str, columns: int = 100, output: Path | None = None, **variables: str):
        pid, self.terminal = pty.fork()
        if not pid:
            os.chdir(site.folder)
            if output is not None:
                os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 1)
            os.execve(INV[0], [*INV, *words], {**site.environment, "TERM": "xterm-256color", **variables})
        self.pid, self._data = pid, b""
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def text(self) -> str:
        """All that was written so far."""
        return self._data.decode(errors="replace")

    def wait_for(self, pattern: str) -> None:
        """Wait until something was written."""
        until = time.monotonic() + 120
        while not re.search(pattern, self.text):
            assert time.monotonic() < until and self._reader.is_alive(), self.text
            time.sleep(0.1)

    def type(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def end(self) -> int:
        """Wait for the end, and return the exit code. The cursor is there again."""
        _, status = os.waitpid(self.pid, 0)
        self._reader.join()
        os.close(self.terminal)
        assert self.text.count(HIDE) == self.text.count(SHOW)
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.terminal, 1 << 16)
            except OSError:  # the other end is closed
                return
            self._data += data


def test_a_terminal_shows_graphs_and_standard_output_is_the_result(built: Site, tmp_path: Path) -> None:
    output = tmp_path / "answer.json"
    screen = Screen(built, *RUN, "--duration", "4", output=output, TMPDIR=str(tmp_path))
    assert screen.end() == 0, screen.text
    document = json.loads(output.read_text())
    assert document_problems(document) == [] and document["status"]["state"] == "completed"
    assert GRAPHS.search(screen.text) and "memory" in screen.text and " left" in screen.text
    assert "sifmark: image_compression training on cpu" in screen.text  # what the image writes is there
    assert "sifmark: measuring" not in screen.text
    assert not list(tmp_path.glob("sifmark-progress-*"))


def test_a_narrow_terminal_that_is_standard_output_too_gets_each_result_whole(built: Site) -> None:
    screen = Screen(built, *RUN, "--duration", "2", "--repeat", "2", "--output", "-", columns=40)
    assert screen.end() == 0, screen.text
    documents = list(map(json.loads, re.findall(r'\{"schema_version".*\}', screen.text)))
    assert [document_problems(document) for document in documents] == [[], []]
    assert "throughput" in screen.text


def test_a_terminal_gets_the_report_and_the_result_is_kept(built: Site, tmp_path: Path) -> None:
    site = make_site(tmp_path).using(SIFMARK_DIST=str(built.dist))
    screen = Screen(site, *RUN, "--duration", "2")
    assert screen.end() == 0, screen.text
    (result,) = (tmp_path / "results").glob("*.json")
    assert problems_of(result) == [] and f"results/{result.name}" in screen.text
    assert "schema_version" not in screen.text


def test_ctrl_c_leaves_a_result_and_the_terminal_as_it_was(built: Site, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    screen = Screen(built, *RUN, "--duration", "600", "--output", str(result), PYTHONIOENCODING="ascii", NO_COLOR="1")
    screen.wait_for(r"loss +[_.\-=+*#@]+  ")
    assert not re.search(r"\x1b\[3\dm", screen.text)
    screen.type(b"\x03")
    assert screen.end() == 130
    assert problems_of(result) == []
    assert json.loads(result.read_text())["status"]["state"] == "interrupted"


@pytest.mark.full
@pytest.mark.parametrize("how", ["--plain", "--quiet", "dumb"])
def test_lines_as_ever_where_graphs_are_not_wanted(built: Site, tmp_path: Path, how: str) -> None:
    own = () if how == "dumb" else (how,)
    terminal = "dumb" if how == "dumb" else "xterm"
    words = (*RUN[:2], *own, *RUN[2:], "--duration", "2", "--output", str(tmp_path / "result.json"))
    screen = Screen(built, *words, TERM=terminal)
    assert screen.end() == 0, screen.text
    assert "measuring [" in screen.text  # the image's own line, which rewrites itself
    assert not GRAPHS.search(screen.text)


def test_a_study_shows_its_runs_and_a_log_keeps_what_they_write(built: Site, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(STUDY)
    site = make_site(tmp_path).using(SIFMARK_DIST=str(built.dist))
    screen = Screen(site, "study.run", "mine.toml", "--format", "json", output=tmp_path / "answer.json")
    assert screen.end() == 0, screen.text
    assert json.loads((tmp_path / "answer.json").read_text())["done"] == 1
    assert "run mine: 0 of 1 done" in screen.text
    assert re.search(r"measuring, step \d+.* left.* images/s", screen.text)
    (log,) = (tmp_path / "results" / "mine" / "here" / "logs").iterdir()
    assert "sifmark: image_compression training on cpu" in log.read_text()
    assert "schema_version" not in log.read_text()


STUDY = """
title = "One run"
questions = ["Does it show?"]
repeats = 1

[[system]]
name = "here"
image = "cpu"

[[run]]
name = "only"
workload = "image_compression"
batch_size = 4
duration = 4
warmup_steps = 1
meter = "none"
skip_numerics = true
"""
