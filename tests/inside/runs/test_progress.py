from __future__ import annotations

import io
import json
import os

import jsonschema
import packed
import pytest
from program import ROOT

from entrypoints.contract import cards
from entrypoints.contract.messages import Data, Evaluated, Phase, Skipped, Step
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.runs import pace, progress
from entrypoints.runs.pace import Pace
from entrypoints.system import console

SCHEMA = json.loads((ROOT / "schemas" / "progress-1.0.json").read_text("utf-8"))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def follow(stream, *argv, wait=0.0, steps=6):
    shown = progress.Progress(resolve(parse(argv), cards.load()["resnet50"], None), "images", stream)
    for number in range(steps):
        if number in (0, 1, 2):
            shown.follow(Phase(("compile", "warmup", "steady")[number], 0.0))
        shown.follow(Step(2.0, wait, 8, 1, None))
    return shown


def test_throughput_and_time_left_are_those_of_the_timed_steps():
    shown = follow(io.StringIO(), "--steps", "10", "--warmup-steps", "2")
    assert shown.line() == "measuring step 6/10, 4.000 images/s, 8.0 s left"


@pytest.mark.parametrize(
    ("quality", "said"),
    [
        ((None,), "loss 0.5000 (2.0 s)"),
        ((0.25,), "loss 0.5000, accuracy 0.2500 (2.0 s)"),
        ((None, 0.0, 0.125), "loss 0.5000, exact match 0.0000, F1 0.1250 (2.0 s)"),
    ],
)
def test_an_evaluation_says_what_it_knows(quality, said):
    stream = io.StringIO()
    follow(stream, "--steps", "10").follow(Evaluated(3, 1.0, 3.0, 8, 0.5, *quality))
    assert f"evaluated after 3 steps: {said}" in stream.getvalue()


def test_a_duration_has_its_own_time_left():
    shown = follow(io.StringIO(), "--duration", "60", "--warmup-steps", "2")
    assert shown.line() == "measuring step 6, 4.000 images/s, 52 s left"


def test_what_steps_do_not_say_of_the_pace_the_clock_does(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    shown = progress.Progress(
        resolve(parse(("--steps", "10")), cards.load()["resnet50"], None), "images", io.StringIO()
    )
    shown.follow(Phase("steady", 0.0))
    for _ in range(5):
        now[0] += 7.0  # a step that says 2 s, and evaluation
        shown.follow(Step(2.0, 0.0, 8, 1, None))
    assert shown.pace.left() == 35.0


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "log"])
def test_a_phase_that_reports_nothing_shows_that_it_lives(stream, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    resolved = resolve(parse(("--steps", "10")), cards.load()["resnet50"], None)
    shown = progress.Progress(resolved, "images", stream, phase="check")
    for _ in range(60):
        now[0] += 1.0
        shown.beat(())
    said = stream.getvalue()
    assert "checking correctness, 60 s" in said
    assert said.count("checking") == (60 if stream.isatty() else 2)
    assert shown.pace.as_json()["phase"] == "checking correctness, 60 s"


def test_an_input_bound_run_says_so():
    assert "input-bound: 50% of the time waits" in follow(io.StringIO(), "--steps", "10", wait=1.0).line()


def test_elsewhere_lines_are_few_and_plain(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    follow(stream, "--steps", "1000", steps=900)
    assert stream.getvalue().splitlines() == ["sifmark: first step", "sifmark: warming up", "sifmark: measuring"]


def test_a_terminal_gets_one_line_that_rewrites_itself(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(progress, "INTERVALS", {True: 0.0})
    monkeypatch.setattr(progress.shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((40, 24)))
    follow(stream, "--steps", "10").note("done")
    *rewritten, last = stream.getvalue().split("\r\x1b[2K")
    assert any(line.startswith("measuring [############........] step 6") for line in rewritten)
    assert all(len(line) < 40 and "\n" not in line for line in rewritten)
    assert last == "sifmark: done\n"


def test_the_first_skipped_file_is_named_once():
    stream = io.StringIO()
    shown = follow(stream, "--steps", "10")
    for name in ("cat/a.jpg", "cat/b.jpg"):
        shown.follow(Skipped(name))
    assert stream.getvalue().count("skipping") == 1


def test_a_name_does_nothing_to_a_terminal(capsys):
    """A file of a data set may be called anything."""
    name, shown = "a\x1b]0;title\x07\r\n\u202eb.jpg", r"a\x1b]0;title\x07\r\n\u202eb.jpg"
    stream = io.StringIO()
    follow(stream, "--steps", "10").follow(Skipped(name))
    console.status(name)
    console.fail(f"--data {name}", name, "data-missing")
    written = capsys.readouterr().err
    assert shown in stream.getvalue() and shown in written
    assert all(letter.isprintable() or letter == "\n" for letter in stream.getvalue() + written)


def test_what_lies_at_a_path_is_told_and_that_one_class_means_nothing(tmp_path):
    packed.shards(tmp_path, [8])
    stream = io.StringIO()
    shown = progress.Progress(
        resolve(parse(["--data", str(tmp_path)]), cards.load()["resnet50"], None), "images", stream
    )
    shown.follow(Data(8, 3, "a set", 2))
    assert stream.getvalue() == "sifmark: data are shards: 8 samples, 3 classes, of a set\n"
    shown.follow(Data(8, 1))
    assert "8 samples, one class\nsifmark: with one class, loss and accuracy mean nothing" in stream.getvalue()
    shown.follow(Data(8, None))
    assert stream.getvalue().endswith("data are shards: 8 samples\n")


def test_synthetic_data_are_nothing_to_tell():
    stream = io.StringIO()
    follow(stream, "--steps", "10", steps=0).follow(Data(8, None))
    assert stream.getvalue() == ""


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_before_any_timed_step_there_is_no_throughput(steps):
    shown = follow(io.StringIO(), "--steps", "10", steps=steps)
    assert "images/s" not in (shown.line() if shown.pace.phase else "")


def test_on_a_terminal_the_rates_are_a_curve(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = follow(EncodedTerminal(), "--steps", "100", "--warmup-steps", "2")
    for seconds in (2.0, 1.0, 4.0):
        now[0] += progress.FEED_INTERVAL
        shown.follow(Step(seconds, 0.0, 8, 1, None))
        shown.beat(())
    assert shown.line().endswith("images/s ▄█▂, 3 min 15 s left")
    for stream in (Terminal(), io.StringIO()):  # of no encoding, and no terminal
        shown.stream = stream
        assert "▄" not in shown.line()


class EncodedTerminal(Terminal):
    encoding = "utf-8"


@pytest.mark.parametrize(("loss", "sent"), [(float("nan"), "nan"), (float("inf"), "inf"), (0.5, 0.5), (None, None)])
def test_a_loss_that_is_not_finite_is_a_word_for_a_host_that_draws(loss, sent):
    pace = Pace(resolve(parse(["--steps", "10"]), cards.load()["resnet50"], None), "images")
    for message in (Phase("steady", 0.0), Step(2.0, 0.0, 8, 1, loss)):
        pace.follow(message)
    document = pace.as_json(watts=float("nan"))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert (document["loss"], document["power_watts"], document["rate"]) == (sent, None, 4.0)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
