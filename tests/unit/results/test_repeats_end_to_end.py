"""What the in-image program writes and what the host side makes of it, end to end."""

import json
from pathlib import Path

import pytest
from program import Program, lay_double

from sifmark.commands.compare import compare
from sifmark.core.settings import load_settings


def test_repeats_are_one_line_for_each_batch_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    double = Program(lay_double(tmp_path / "sifmark"), tmp_path)
    sizes = ("--steps", 4, "--warmup-steps", 1, "--batch-sizes", "1,2")
    assert double.run("resnet50", *sizes, "--repeat", 3, "--output", "results/")[0] == 0
    (tmp_path / "results" / ".sifmark.host.1.0f0f0f0f").write_text("left by a writer that was killed")
    compare(load_settings(), (str(tmp_path / "results"),), metrics="throughput", form="json")
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert [len(line["results"]) for line in table["rows"]] == [3, 3]
    assert [line["fields"]["batch_size"] for line in table["rows"]] == [1, 2]
