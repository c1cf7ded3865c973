"""The progress of runs as data: what is in a line, and a host that does not read, stops reading, or never was there."""

from __future__ import annotations

import json
import os

import jsonschema
import pytest
from program import ROOT

from entrypoints.system.feed import LONGEST_LINE, VARIABLE, Feed, opened_feed

SCHEMA = json.loads((ROOT / "schemas" / "progress-1.0.json").read_text("utf-8"))
RUN = ("resnet50", "--duration", "2", "--warmup-steps", "2", "--batch-size", "4")


class Reader:
    """A host that draws, as far as a feed can tell."""

    def __init__(self, path):
        os.mkfifo(str(path))
        self.path, self.descriptor = str(path), os.open(str(path), os.O_RDWR | os.O_NONBLOCK)

    def lines(self):
        """What has arrived, each line checked against the schema."""
        documents = [json.loads(line) for line in os.read(self.descriptor, 1 << 20).splitlines()]
        for document in documents:
            jsonschema.Draft202012Validator(SCHEMA).validate(document)
        return documents

    def close(self):
        os.close(self.descriptor)


@pytest.fixture()
def reader(tmp_path):
    return Reader(tmp_path / "pipe")


def trace(tmp_path):
    """A file of a constant 100 W over two boards."""
    samples = [{"at": at / 50, "watts": [60.0, 40.0], "joules": [1.2 * at, 0.8 * at]} for at in range(3000)]
    described = {"scope": "board", "devices": ["a", "b"], "update_period": 0.02, "samples": samples}
    (tmp_path / "trace.json").write_text(json.dumps(described))
    return f"replay:{tmp_path / 'trace.json'}"


def test_a_run_reports_once_a_second_what_a_view_needs(double, tmp_path, reader):
    metered = ("--meter", trace(tmp_path), "--idle-seconds", "0")
    _, output, errors = double.run(*RUN, *metered, "--repeat", "2", **{VARIABLE: reader.path})
    documents, (first, second) = reader.lines(), map(json.loads, output.splitlines())
    assert len({each["started"] for each in documents}) == 2  # runs
    assert 4 <= len(documents) <= 30
    measuring = [each for each in documents if each["phase"] == "measuring"]
    assert {(each["workload"], each["batch_size"], each["unit"]) for each in documents} == {("resnet50", 4, "images")}
    assert all(0 < each["share"] <= 1 and each["planned_seconds"] == 2 for each in measuring)
    assert all(each["power_watts"] == pytest.approx(100, rel=0.1) for each in measuring)
    assert {each["memory_mib"] is None or each["memory_mib"] > 1 for each in measuring} == {True}
    assert any(each["memory_mib"] for each in measuring)  # None once the process has ended
    last = measuring[-1]
    assert last["throughput"] == pytest.approx(second["metrics"]["throughput"]["value"], rel=0.5)
    assert last["seconds_left"] < 2 and last["steps"] <= len(second["steps"]["seconds"])
    assert first["status"]["state"] == second["status"]["state"] == "completed"
    assert "sifmark: measuring" not in errors and "resnet50 training on double" in errors  # notes stay


@pytest.mark.parametrize("place", ["nowhere", "a file", "a pipe without a reader"])
def test_without_a_reader_lines_for_people_are_as_ever(double, tmp_path, place):
    path = tmp_path / "place"
    if place == "a file":
        path.write_text("kept")
    elif place == "a pipe without a reader":
        os.mkfifo(str(path))
    _, _, errors = double.run("resnet50", "--smoke", **{VARIABLE: str(path)})
    assert "sifmark: measuring" in errors
    assert place != "a file" or path.read_text() == "kept"


def test_a_host_that_is_gone_or_does_not_read_costs_the_run_nothing(reader):
    feed = Feed(reader.path)
    for _ in range(10_000):  # far more than a pipe holds
        feed.send({"text": "x" * 100})
    assert feed.is_read
    assert os.read(reader.descriptor, LONGEST_LINE).startswith(b'{"text": "xxx')
    reader.close()
    feed.send({"text": "x"})
    assert not feed.is_read
    feed.send({"text": "x"})


def test_a_line_is_written_in_one_piece_or_not_at_all(reader):
    with opened_feed({VARIABLE: reader.path}) as feed:
        feed.send({"text": "x" * LONGEST_LINE})
        feed.send({"text": "y"})
    assert os.read(reader.descriptor, 1 << 20) == b'{"text": "y"}\n'


def test_no_variable_is_no_feed():
    with opened_feed({}) as feed:
        assert not feed.is_read
        feed.send({"text": "x"})
