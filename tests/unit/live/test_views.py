"""Views of runs and studies: on any terminal, of any workload, with whatever an image reports."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from unit.engines.test_progress_pipe import LINE, encoded, send
from unit.fake_studies import plan_of, run_of

from sifmark.engines.progress import PROGRESS_VARIABLE, ProgressPipe, progress_folder
from sifmark.live import drawing
from sifmark.live.history import ProgressHistory
from sifmark.live.run import LineWriter, RunView
from sifmark.live.study import StudyView

HOSTILE = "a[red]b\x1b]0;x\x07\u202ec\n[/]"


def drawn(view: Any, columns: int = 80, lines: int = 30, encoding: str = "utf-8", **options: Any) -> list[str]:
    """Return the lines that a terminal of this size and encoding would show."""
    buffer = io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding)
    options = {"force_terminal": True, "no_color": True, "color_system": None, **options}
    Console(file=file, width=columns, height=lines, **options).print(view, end="")
    file.flush()
    return buffer.getvalue().decode(encoding).splitlines()


class Reported(ProgressHistory):
    """A history of lines as an image writes them, on a clock that stands still."""

    def __init__(self, folder: Path, *lines: bytes) -> None:
        self.now = 0.0
        super().__init__(lambda: self.now)
        pipe = ProgressPipe(folder / "a pipe")
        for line in lines:
            send(pipe, line)
            for progress in pipe.read():
                self.add(progress)
        pipe.close()


def recorded(folder: Path, **fields: Any) -> Reported:
    """The history of thirty seconds."""
    lines = [
        encoded(steps=step, share=step / 100, rate=4 + step % 3, loss=7 - step / 10, power_watts=300.0 + step, **fields)
        for step in range(1, 31)
    ]
    return Reported(folder, *lines)


def test_a_run_has_a_title_how_far_it_is_and_graphs(tmp_path: Path) -> None:
    title, how_far, *graphs = drawn(RunView(recorded(tmp_path)), lines=20)
    assert title == "resnet50 training, fp32, batch 8 on cpu"
    assert how_far == "measuring, step 30/100  ████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░  18 s left"
    assert [line.split()[0] for line in graphs] == ["throughput", "loss", "power", "memory"]
    assert [line.rpartition("  ")[2] for line in graphs] == ["4.000 images/s", "4.000", "330.0 W", "359.3 MiB"]
    assert re.fullmatch(r"loss        █+▇+▆+▅+▄+▃+▂+▁+  4.000", graphs[1])


def test_time_left_goes_on_between_two_lines(tmp_path: Path) -> None:
    history = recorded(tmp_path)
    history.now = 10.0
    assert "8 s left" in drawn(RunView(history))[1]
    history.now = 1000.0
    assert "0 s left" in drawn(RunView(history))[1]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
@pytest.mark.parametrize("columns", [200, 80, 40, 10, 2])
def test_no_line_is_wider_than_the_terminal_or_has_what_it_cannot_show(
    tmp_path: Path, columns: int, encoding: str
) -> None:
    view = StudyView("run x", tmp_path)
    view.show("12 of 36 done; about 12 min left", 12, 36, {})
    view._labels, view._histories = {"a": "here: resnet50 training batch size 8 (1/3)"}, {"a": recorded(tmp_path)}
    for lines in (drawn(RunView(recorded(tmp_path)), columns, encoding=encoding), drawn(view, columns, 30, encoding)):
        assert lines and all(len(line) < columns for line in lines)


def test_nothing_is_markup_or_moves_the_cursor(tmp_path: Path) -> None:
    shown = "\n".join(drawn(RunView(recorded(tmp_path, workload=HOSTILE, unit=HOSTILE, phase=HOSTILE)), 200))
    assert "a[red]b\\x1b]0;x\\x07\\u202ec\\n[/]" in shown
    assert "\x1b" not in shown and "\u202e" not in shown


def test_without_colour_nothing_is_lost(tmp_path: Path) -> None:
    view = RunView(recorded(tmp_path))
    colored = "\n".join(drawn(view, no_color=False, color_system="truecolor"))
    assert "\x1b[36m" in colored and "\x1b[36m" not in "\n".join(drawn(view))


def test_another_run_begins_anew_and_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("throughput", "rate", "loss", "memory_mib", "seconds_left", "planned_steps"))
    other = encoded(started="2026-11-27T12:43:58.531Z", steps=0, share=0, phase="importing the framework", **nothing)
    history = Reported(tmp_path, encoded(), encoded(), other)
    assert history.loss.values == [None]
    assert drawn(RunView(history))[1:] == [f"importing the framework  {'░' * 40}"]
    assert drawn(RunView(ProgressHistory())) == []  # an image that reports nothing


def test_a_loss_that_is_not_finite_is_said(tmp_path: Path) -> None:
    loss = drawn(RunView(Reported(tmp_path, encoded(loss=5.0), encoded(loss="nan"))), lines=20)[3]
    assert loss.startswith("loss") and loss.endswith("nan")


def test_a_study_has_a_row_for_each_run_in_progress(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, *(run_of(batch_size=size) for size in (1, 2, 4)))
    with progress_folder() as folder:
        assert folder is not None
        view = StudyView("run mine", folder)
        pipes = {planned.key: pipe for planned in plan.runs if (pipe := view.pipe_for(planned))}
        labels = {planned.key: f"here: batch size {planned.run.cell['batch_size']}" for planned in plan.runs}
        for pipe in list(pipes.values())[:2]:
            send(pipe, encoded(steps=1), encoded(steps=50, share=0.5))
        view.show("1 of 10 done", 1, 10, labels)
        rows = drawn(view, 150)
        assert rows[0] == "run mine: 1 of 10 done  ████░░░░░░░░░░░░░░░░"  # 1 and twice a half
        assert rows[1] == "here: batch size 1"
        assert re.match(r"  measuring, step 50/100  1\d s left  throughput ██ 4.000 images/s  loss ▄▄ 6.900", rows[2])
        assert rows[5:] == ["here: batch size 4", "  starting"]
        narrow = drawn(view, 60)
        assert len(narrow) == 7
        assert re.match(r"  measuring, step 50/100  1\d s left  4.000 images/s  6.900", narrow[2])
        assert drawn(view, 60, 6)[-1] == "this terminal is too low for the others"
        view.show("2 of 10 done", 2, 10, {plan.runs[1].key: "x"})
        gone = plan.runs[0].key
        assert not Path(pipes[gone].variables[PROGRESS_VARIABLE]).exists()
        view.close()
        assert not list(folder.iterdir())


def test_a_study_is_drawn_also_where_no_pipe_can_be_made(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, run_of(batch_size=1))
    view = StudyView("run mine", None)
    assert view.pipe_for(plan.runs[0]) is None
    view.show("0 of 1 done", 0, 1, {plan.runs[0].key: "here: batch size 1"})
    assert drawn(view, 60)[1:] == ["here: batch size 1", "  running"]
    view.close()


def test_lines_are_written_whole_and_one_without_end_in_pieces() -> None:
    lines: list[str] = []
    writer = LineWriter(lines.append)
    for data in (b"one\ntw", b"o\n", b"\xff\n", b"y" * 70_000, b"rest"):
        writer.write(data)
    writer.end()
    writer.end()
    assert lines == ["one", "two", "\N{REPLACEMENT CHARACTER}", "y" * 70_000, "rest"]


COLOURS = ["\x1b[" + "9" * 5000 + "mred", "\x1b[38;5mred", "\x1b[38;2;1mred", "\x1b]8;;" + "x" * 9999]


@pytest.mark.parametrize("line", COLOURS, ids=range(4))
def test_a_line_of_another_program_ends_no_run(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=40)
    monkeypatch.setattr(drawing, "terminal", lambda: console)
    written = drawing.Drawing("the view")
    written.write_line(line)
    written.write_line("after it")
    assert "after it" in shown.getvalue()


def test_the_line_of_these_tests_is_one_of_an_image(tmp_path: Path) -> None:
    assert Reported(tmp_path, encoded()).latest is not None and LINE["workload"] == "resnet50"
