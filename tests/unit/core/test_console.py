"""Tables and progress, on a terminal and in a pipe."""

import io
import re
import sys
from pathlib import Path

import pytest

from sifmark.core import console, terminal
from sifmark.core.console import markdown_text

ROWS = [["cpu", 1234567, ["a", "b"]], ["with\n\x1b]0;other\x07 text [bold]", 5, []]]


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_in_a_pipe_columns_are_as_wide_as_their_words(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.output_table("image", "parameters", "names", rows=ROWS)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.splitlines() == [
        "image                               parameters  names",
        "cpu                                  1,234,567  a, b",
        "with\\n\\x1b]0;other\\x07 text [bold]           5",
    ]


def test_a_table_without_rows_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.output_table("image", "state", rows=[], stderr=True)
    assert capsys.readouterr() == ("", "image  state\n")


def test_on_a_terminal_no_cell_moves_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "dumb")
    terminal._console.cache_clear()
    terminal.output_table("image", "parameters", "names", rows=ROWS)
    terminal._console.cache_clear()
    shown = stream.getvalue()
    assert "1,234,567" in shown and "with\\n\\x1b]0;other\\x07 text [bold]" in shown
    assert "\x1b]" not in shown and "\x07" not in shown


def test_on_a_terminal_warnings_are_folded_between_words_and_commands_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    terminal._console.cache_clear()
    path = f"results/{'x' * 80}.json"
    terminal.warn(f"threads waited for half of their time, which the result {path} says too")
    terminal.status(f"+ apptainer run {path} --steps 4 --warmup-steps 2")
    terminal._console.cache_clear()
    *warning, command = stream.getvalue().splitlines()
    assert [line.strip() for line in warning] == [
        "warning: threads waited for half of their time, which the result",
        path,
        "says too",
    ]
    assert command == f"+ apptainer run {path} --steps 4 --warmup-steps 2"


def test_in_a_log_a_transfer_is_reported_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal.step("push cpu.sif") as progress:
        progress.transferred(2**20, 3 * 2**30)
    assert capsys.readouterr().err.splitlines()[0] == "- push cpu.sif ..."
    monkeypatch.setattr(terminal, "HEARTBEAT", 0.0)
    with terminal.step("push cpu.sif") as progress:
        progress.transferred(2**20, 3 * 2**30)
        progress.transferred(5)
    said = capsys.readouterr().err.splitlines()[1:3]
    assert [line.rpartition(", ")[2] for line in said] == ["1 MiB of 3.0 GiB", "5 B"]


def test_a_file_that_another_program_writes_is_watched(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(terminal, "HEARTBEAT", 0.0)
    monkeypatch.setattr(console, "WATCHED_EVERY", 0.001)
    shown = ""
    with terminal.step("convert") as progress, progress.watching(tmp_path / "image.sif"):
        (tmp_path / "image.sif").write_bytes(bytes(3000))
        while "3 KiB" not in shown:
            shown += capsys.readouterr().err


@pytest.mark.parametrize("text", ["# a", "> a", "- a", "    a", "~~~", "[a]: b", "| a", "*a*"])
def test_no_text_begins_a_part_of_a_document(text: str) -> None:
    assert markdown_text(text) in (f"\\{text}", text.strip())
    assert not re.match(r"[#>~|\[*-]|\s", markdown_text(text))


def test_a_state_is_coloured_in_its_own_cell(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.configure(color="always")
    terminal.output_table("file", "state", rows=[["failed.json", "failed"], ["x", "valid"]])
    terminal.configure()
    assert capsys.readouterr().out.splitlines() == [
        "file         state",
        "failed.json  \x1b[31mfailed\x1b[0m",
        "x            \x1b[32mvalid\x1b[0m",
    ]


def test_wide_characters_take_two_columns() -> None:
    assert list(console.align_columns([["name", "x"], ["結果", "1"]])) == ["name  x", "結果  1"]


def test_a_table_is_folded_between_words_where_that_suffices() -> None:
    rows = [["runs of", "axes", "time"], ["resnet50-training", "2 of batch_size x 3 repeats", "~1 min 25 s"]]
    words = {word for row in rows for cell in row for word in cell.split()}
    for width in range(37, 70):  # the longest word of each column, and the gaps between these
        lines = list(console.align_columns(rows, width=width))
        assert max(map(len, lines)) <= width and {word for line in lines for word in line.split()} == words
    narrow = list(console.align_columns(rows, width=30))
    assert max(map(len, narrow)) <= 30, "in less room words are cut"


def test_the_library_is_silent_unless_it_is_given_a_reporter(capsys: pytest.CaptureFixture[str]) -> None:
    shown = console.report_to(console.Reporter())
    with console.step("build") as progress:
        progress.detail("half")
        console.status("a line")
        console.warn("a warning")
    console.report_to(shown)
    assert capsys.readouterr() == ("", "")
