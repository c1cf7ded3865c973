"""Tables, on a terminal and in a pipe."""

import io
import sys

import pytest

from sifmark.core import console

ROWS = [["cpu", 1234567, ["a", "b"]], ["with\n\x1b]0;other\x07 text [bold]", 5, []]]


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_in_a_pipe_columns_are_as_wide_as_their_words(capsys: pytest.CaptureFixture[str]) -> None:
    console.output_table("image", "parameters", "names", rows=ROWS)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.splitlines() == [
        "image                               parameters  names",
        "cpu                                  1,234,567  a, b",
        "with\\n\\x1b]0;other\\x07 text [bold]           5",
    ]


def test_a_table_without_rows_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    console.output_table("image", "state", rows=[], stderr=True)
    assert capsys.readouterr() == ("", "image  state\n")


def test_on_a_terminal_no_cell_moves_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "dumb")
    console._console.cache_clear()
    console.output_table("image", "parameters", "names", rows=ROWS)
    console._console.cache_clear()
    shown = terminal.getvalue()
    assert "1,234,567" in shown and "with\\n\\x1b]0;other\\x07 text [bold]" in shown
    assert "\x1b]" not in shown and "\x07" not in shown
