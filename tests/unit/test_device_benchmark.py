"""The script for minutes with a device: what it keeps, skips and stops. Experiments are programs of a few lines."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured_page import measured_table
from processes import wait_until_gone

from sifmark.core.paths import CHECKOUT

sys.path.append(str(CHECKOUT / "benchmarks"))
import device
from device import Device, Experiment, Series

TOLD = (
    "import json; print(json.dumps({'figures': {'throughput': {'value': 2750.0, 'unit': 'images/s'}}}), flush=True)\n"
)
LONG, SHORT = 600.0, 5.0  # seconds: more than any program here takes, and enough for one to say something
H200 = Device("cuda", "NVIDIA H200", "580")


@pytest.fixture()
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a file that experiments depend on."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "part.py").write_text("SIZE = 1\n")
    monkeypatch.setattr(device, "CHECKOUT", checkout)
    device._text.cache_clear()
    return checkout


@pytest.fixture()
def made(root: Path) -> Callable[..., Experiment]:
    """An experiment by the text of its program."""

    def experiment(name: str, program: str = TOLD, seconds: float = LONG) -> Experiment:
        file = root / f"{name}.program"
        file.write_text(program)
        return Experiment(name, seconds, [sys.executable, "-s", str(file)], ("*.py",))

    return experiment


def series(root: Path, seconds: float = 2 * LONG, about: dict[str, Any] | None = None) -> Series:
    return Series(H200, root / "out", time.monotonic() + seconds, about or {}, root / "measured")


def record(root: Path, name: str) -> Any:
    return json.loads((root / "out" / "nvidia-h200" / f"{name}.json").read_text())


def test_a_result_says_what_was_measured_on_what_and_by_which_code(root, made):
    about = {"device": "NVIDIA H200", "driver": "580", "versions": {"torch": "2.13"}, "commit": "abc"}
    series(root, about=about).run([made("defaults-resnet50-training")])
    result = record(root, "defaults-resnet50-training")
    assert result["state"] == "completed" and result["reason"] is None
    assert (
        {name: result[name] for name in about} == about and len(result["code"]) == 64 and result["date"].endswith("Z")
    )
    assert result["figures"]["throughput"] == {"value": 2750.0, "unit": "images/s"}
    assert result["figures"]["over_target"] == {"value": 0.5, "unit": "1", "target": 5500.0}
    assert [path.name for path in (root / "out" / "nvidia-h200").iterdir()] == ["defaults-resnet50-training.json"]


def test_what_was_measured_with_this_code_is_not_measured_again(root, made, capsys):
    planned = [made("one"), made("other")]
    assert len(series(root).run(planned)) == 2
    (root / "out" / "nvidia-h200" / "other.json").rename(root / "other.json")
    kept = root / "measured" / "nvidia-h200"
    kept.mkdir(parents=True)
    (root / "other.json").rename(kept / "other.json")
    assert series(root).run(planned) == []
    assert capsys.readouterr().out.count("skipped, it was measured with this code") == 2


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("SIZE = 2\n", True),
        ('"""What it is."""\n\nSIZE = 1  # of a part\n', False),
        ("SIZE = '#'\n", True),
        ("def f():\n    '''Says.\n\n    More.'''\n    return 1\n", True),
    ],
)
def test_changed_code_is_measured_again_and_changed_words_are_not(root, made, text, again):
    series(root).run([made("one")])
    (root / "part.py").write_text(text)
    device._text.cache_clear()
    assert len(series(root).run([made("one")])) == again


def test_one_that_fails_keeps_what_it_found_and_the_next_goes_on(root, made, capsys):
    planned = [made("failing", TOLD + "raise SystemExit('no room')"), made("one")]
    states = [result["state"] for result in series(root).run(planned)]
    assert states == ["failed", "completed"]
    result = record(root, "failing.unfinished")
    assert result["reason"] == "no room" and result["figures"]["throughput"]["value"] == 2750.0
    assert "failing: failed (no room)" in capsys.readouterr().out
    assert [each["experiment"] for each in series(root).run([*planned, made("new")])] == ["new", "failing"]


def test_one_that_hangs_is_killed_with_all_that_it_started(root, made):
    program = TOLD + (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        "print(json.dumps({'settings': {'child': child.pid}}), flush=True)\n"
        "time.sleep(3600)\n"
    )
    (result,) = series(root).run([made("hanging", program, SHORT)])
    assert result["state"] == "killed" and result["seconds"] >= SHORT
    assert record(root, "hanging.unfinished")["figures"]["throughput"]["value"] == 2750.0
    wait_until_gone(result["settings"]["child"])


def test_figures_are_in_a_file_while_an_experiment_goes_on(root, made):
    place = root / "out" / "nvidia-h200" / "one.unfinished.json"
    program = TOLD + f"while 'images/s' not in open({str(place)!r}).read(): pass\n"
    (result,) = series(root).run([made("one", program, 10 * SHORT)])
    assert result["state"] == "completed" and not place.exists()


def test_a_result_stays_until_a_new_one_is_complete(root, made):
    series(root).run([made("one")])
    before = record(root, "one")
    (root / "part.py").write_text("SIZE = 3\n")
    device._text.cache_clear()
    series(root).run([made("one", "raise SystemExit(1)")])
    assert record(root, "one") == before and record(root, "one.unfinished")["state"] == "failed"


def test_one_that_does_not_fit_into_what_is_left_is_not_begun(root, made, capsys):
    (result,) = series(root, seconds=LONG).run([made("long", seconds=LONG), made("short", seconds=SHORT)])
    assert result["experiment"] == "short" and not (root / "out" / "nvidia-h200" / "long.json").exists()
    assert "long: skipped, it may take 600 s, and 59" in capsys.readouterr().out


def test_one_that_says_that_it_had_no_time_is_not_complete(root, made):
    (result,) = series(root).run([made("checks", TOLD + "print(json.dumps({'unfinished': 'no time for lstm'}))")])
    assert (result["state"], result["reason"]) == ("unfinished", "no time for lstm")


def test_targets_and_workloads_are_those_of_experiments():
    names = {experiment.name for experiment in device.experiments("cuda")}
    assert set(device.TARGETS["NVIDIA H200"]) <= names
    for kind in device.WORKLOADS:
        for experiment in device.experiments(kind):
            for pattern in experiment.files:
                assert list(CHECKOUT.glob(pattern)), pattern


@pytest.mark.parametrize("path", sorted((CHECKOUT / "measured").glob("*/*")), ids=lambda path: path.stem)
def test_what_is_kept_is_complete_and_says_where_it_is_from(path):
    result = json.loads(path.read_text())
    assert result["state"] == "completed" and path.name == f"{result['experiment']}.json"
    assert Device("cuda", result["device"], result["driver"]).folder == path.parent.name
    assert {"torch", "python"} <= set(result["versions"]) and result["commit"] and result["date"] and result["settings"]


def kept(folder: Path, name: str, **parts: Any) -> None:
    (folder / "nvidia-h200").mkdir(parents=True, exist_ok=True)
    about = {"experiment": name, "state": "completed", "device": "NVIDIA H200", "commit": f"{'a' * 40}-dirty"}
    document = {**about, "settings": {}, "figures": {}, **parts}
    (folder / "nvidia-h200" / f"{name}.json").write_text(json.dumps(document))


def test_the_table_says_what_was_eager_and_what_the_defaults_reach(tmp_path):
    figures = {
        "throughput": {"value": 5600.4, "unit": "images/s", "least": 5500, "most": 5700},
        "over_plain": {"value": 1.1, "unit": "1", "least": 1.05, "most": 1.2},
        "fraction_of_bound": {"value": None, "unit": "1", "reason": "nobody cites it"},
        "over_target": {"value": 1.0182, "unit": "1"},
        "power_mean": {"value": 600.4, "unit": "W"},
    }
    settings = {"precision": "bf16", "compile": None, "batch_size": 16}
    kept(tmp_path, "eager-gpt_117m-training", figures={"throughput": figures["throughput"]}, settings=settings)
    kept(tmp_path, "matmul-bf16", figures={"normal_over_whole_8192": {"value": 0.9, "unit": "1"}})
    kept(tmp_path, "failing", state="failed", figures={"throughput": figures["throughput"]})
    lacking = measured_table(tmp_path)
    assert "| gpt_117m training | bf16, eager, batch 16 | 5,600 images/s (5,500 to 5,700) |  |  |  |" in lacking
    assert "| matmul bf16: products of random over those of whole numbers 8192 |  | 0.9 |" in lacking
    assert "not measured yet" in lacking and "failing" not in lacking
    kept(tmp_path, "defaults-resnet50-training", figures=figures, settings={**settings, "compile": "reduce-overhead"})
    table = measured_table(tmp_path)
    assert (
        "| NVIDIA H200 | resnet50 training | bf16, compiled (reduce-overhead), batch 16 | "
        "5,600 images/s (5,500 to 5,700), 600 W | 1.1 (1.05 to 1.2) |  | 1.02 | `aaaaaaaa`, changed |"
    ) in table
    assert "not measured yet" not in table
