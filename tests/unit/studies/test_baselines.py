"""Named baselines: what is kept, what is refused, and comparing with one as with a folder."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.refusals import refused
from unit.studies.histories import DRIVER, FIRST, HOST, IMAGE, key, write_nights, write_run

from sifmark.commands.compare import compare as compare_command
from sifmark.commands.studies import baseline as baseline_command
from sifmark.core.errors import GateError, SifmarkError, UndecidedError, UsageError
from sifmark.core.files import write_json
from sifmark.core.schemas import errors_of
from sifmark.core.settings import load_settings
from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.exports import as_json
from sifmark.results.comparison.query import Query
from sifmark.results.marks import MARKS
from sifmark.studies.history.baseline import baseline_file, make_baseline, read_baseline, write_baseline

ROOT = Path(__file__).parents[3]
KEPT = [100.0, 100.5, 99.5]
# Before and after an update.
UPDATED: list[dict[str, Any]] = [
    {DRIVER: "550.54", IMAGE: key(1), HOST: "node01"},
    {DRIVER: "560.28", IMAGE: key(2), HOST: "node02"},
]
STUDY = """
title     = "Mine"
questions = ["How fast?"]
[[system]]
name  = "here"
image = "cpu"
[[run]]
name       = "all"
workload   = "resnet50"
task       = "training"
precision  = "fp32"
batch_size = 1
steps      = 5
"""


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    folder = tmp_path / "measured"
    write_nights(folder, KEPT, **UPDATED[0])
    write_nights(folder, [50.0, 50.3, 49.8], configuration__precision="bf16")
    return folder


@pytest.fixture
def baselines(tmp_path: Path, measured: Path) -> Path:
    folder = tmp_path / "baselines"
    write_baseline(make_baseline("nightly", [str(measured)]).baseline, folder)
    return folder


def compare(folder: Path, results: Path, **changes: Any) -> None:
    options: dict[str, Any] = {"metrics": "throughput", "fail_below": 0.97, "form": "json", **changes}
    options = {"against": "baseline:nightly", "allow_missing": True, **options}
    settings = replace(load_settings(), baselines=folder, keys=options.pop("keys", ()))
    compare_command(settings, (str(results),), **options)


def keep(folder: Path, name: str, *paths: Path, **options: Any) -> None:
    baseline_command(replace(load_settings(), baselines=folder), name, tuple(map(str, paths)), **options)


def answer_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_baseline_has_every_run_with_what_identifies_it(baselines: Path, measured: Path) -> None:
    document = json.loads((baselines / "nightly.json").read_text())
    assert list(errors_of("baseline-1.1", document)) == []
    row = next(row for row in document["rows"] if row["fields"]["configuration.precision"] == "fp32")
    assert [run["values"]["throughput"] for run in row["repeats"]] == pytest.approx(KEPT, abs=1) and row["units"]
    (run, *_) = row["repeats"]
    assert (run["driver"], run["image"], run["host"]) == ("550.54", key(1), "node01")
    assert run["started"].startswith("2026-03-0") and Path(run["file"]).is_file()
    assert json.loads(Path(run["file"]).read_text())["id"] == run["id"]
    baseline = read_baseline(baselines, "nightly")
    assert (baseline.rows, len(baseline.repeats), baseline.dates) == (2, 6, ("2026-03-01", "2026-03-03"))


@pytest.mark.parametrize("query", [Query(("throughput",)), Query(every_metric=True), Query(more_fields=(
    "configuration.seed", "host.hostname.value"))], ids=["one", "all", "fields"])  # fmt: skip
def test_comparing_with_a_baseline_is_comparing_with_its_results(
    baselines: Path, measured: Path, tmp_path: Path, query: Query
) -> None:
    new = tmp_path / "new"
    write_nights(new, [98.0, 97.0, 99.0], **UPDATED[1])
    asked = replace(query, against=True)
    observations = list(read_baseline(baselines, "nightly").observations(query.extra_fields))
    with_baseline = compare_results([str(new)], asked, baselines=observations)
    with_folder = compare_results([str(new)], asked, str(measured))
    assert json.loads(as_json(with_baseline)) == json.loads(as_json(with_folder))


def test_the_gate_passes_fails_and_cannot_decide(
    baselines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same, slower, few = (tmp_path / name for name in ("same", "slower", "few"))
    write_nights(same, [100.1, 99.9, 100.2])
    write_nights(slower, [90.1, 89.9, 90.2])
    write_nights(few, [100.0, 90.0])
    compare(baselines, same)
    assert answer_of(capsys)["tables"][0]["rows"][-1]["metrics"]["throughput"]["ratio"] == pytest.approx(1, abs=0.01)
    with pytest.raises(GateError) as failed:
        compare(baselines, slower)
    assert (failed.value.exit_code, failed.value.code) == (7, "gate-failed")
    with pytest.raises(SifmarkError) as undecided:
        compare(baselines, few)
    assert (undecided.value.exit_code, undecided.value.code) == (8, "gate-undecided")
    compare(baselines, slower, fail_below=None, metrics="step_time_p50", fail_above=1.2)
    with refused(UndecidedError, "gate-undecided", "1 baseline without a counterpart"):
        compare(baselines, same, allow_missing=False)


def test_what_is_not_comparable_is_refused_as_with_two_folders(baselines: Path, tmp_path: Path) -> None:
    stand_in = tmp_path / "stand-in"
    write_nights(stand_in, KEPT, provenance__stand_in=True)
    with refused(SifmarkError, "results-incomparable") as caught:
        compare(baselines, stand_in, fail_below=None)
    assert "provenance.stand_in" in caught.value.cause


def test_another_configuration_has_no_baseline(baselines: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_nights(other, KEPT, configuration__batch_size=32)
    with refused(SifmarkError, "gate-undecided"):
        compare(baselines, other)


def test_a_baseline_keeps_every_mark_and_the_session_of_a_run(baselines: Path, measured: Path) -> None:
    made = make_baseline("hot", [str(measured)]).baseline
    first, *others = made.repeats
    marked = replace(first.observation, marks=frozenset(mark.code for mark in MARKS))
    write_baseline(replace(made, repeats=(replace(first, observation=marked), *others)), baselines)
    kept = {each.id: each for each in read_baseline(baselines, "hot").observations()}
    assert kept[marked.id].marks == marked.marks and "throttled" in marked.marks
    for repeat in others:
        each = repeat.observation
        again = kept[each.id]
        assert (again.marks, again.session, again.started) == (each.marks, each.session, each.started)


@pytest.mark.parametrize(("tonight", "code"), [
    ([100.1, 99.9, 100.2], 0), ([80.1, 79.9, 80.2], 7), pytest.param([100.1, 99.9], 0, marks=pytest.mark.full),
    pytest.param(None, 4, marks=pytest.mark.full)
], ids=["same", "slower", "few", "no result"])  # fmt: skip
def test_the_script_for_every_night_does_what_its_page_says(
    baselines: Path, tmp_path: Path, tonight: list[float] | None, code: int
) -> None:
    """In place of the run a program copies results; compare and history are the real ones."""
    page = (ROOT / "docs/results/baselines-and-history.md").read_text()
    script = page.partition("#!/bin/sh\n")[2].partition("```")[0].replace("/srv/benchmarks", str(tmp_path))
    assert script.count("baseline:alpha") == 1
    (baselines / "nightly.json").rename(baselines / "alpha.json")
    if tonight:
        write_nights(tmp_path / "tonight", tonight, **UPDATED[0])
        write_nights(tmp_path / "tonight", [50.0, 50.3, 49.8], configuration__precision="bf16")
    stand_in = tmp_path / "bin" / "sifmark"
    stand_in.parent.mkdir()
    copy = (
        f'[ -d {tmp_path}/tonight ] || exit 4; for last; do :; done; mkdir -p "$last"; cp {tmp_path}/tonight/* "$last"'
    )
    real = f'exec {sys.executable} -m sifmark "$@"'
    stand_in.write_text(f'#!/bin/sh\nif [ "$1" = run ]; then {copy}; else echo "$1" >> {tmp_path}/called; {real}; fi\n')
    stand_in.chmod(0o755)
    environment = {**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (tmp_path / "called").read_text().split() == ["compare", "study.history"], ran.stderr
    assert ran.returncode == code or (code == 4 and ran.returncode), ran.stderr


def test_results_that_are_in_the_baseline_are_named(
    baselines: Path, measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(baselines, measured, fail_below=None)
    assert "6 results are baselines too" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reference", "changes", "code"),
    [
        ("baseline:nightl", {}, "unknown-name"),
        ("baseline:../nightly", {}, "invalid-option"),
        ("baseline:", {}, "unknown-name"),
        ("baselines:nightly", {}, "unknown-name"),
        ("nightly", {}, "unknown-name"),
        ("baseline:nightly", {"baseline": "site=a"}, "invalid-option"),
    ],
)
def test_a_reference_that_is_none(
    baselines: Path, measured: Path, reference: str, changes: dict[str, Any], code: str
) -> None:
    with refused(UsageError, code) as caught:
        compare(baselines, measured, against=reference, **changes)
    assert caught.value.remedy


def test_a_baseline_has_no_signatures(baselines: Path, measured: Path, tmp_path: Path) -> None:
    trusted = tmp_path / "key.pub"
    trusted.write_text("-----BEGIN PUBLIC KEY-----\n")
    with refused(UsageError, "invalid-option") as caught:
        compare(baselines, measured, require_signature=True, keys=(str(trusted),))
    assert "--baseline RESULTS" in caught.value.remedy


def test_failed_runs_are_left_out_and_named(measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(measured, FIRST, 99.0, configuration__smoke=True)
    keep(tmp_path / "kept", "nightly", measured)
    out, err = capsys.readouterr()
    assert out == f"kept: {tmp_path}/kept/nightly.json, 6 runs of 2 configurations\n"
    assert "smoke true" in err


def test_too_few_repeats_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_nights(tmp_path / "few", [100.0, 101.0])
    keep(tmp_path / "kept", "few", tmp_path / "few", form="json")
    out, err = capsys.readouterr()
    assert json.loads(out)["runs"] == 2 and "fewer than 3 runs" in err


@pytest.mark.parametrize("content", ["{", "{}", ""])
def test_a_damaged_result_keeps_a_baseline_from_being_made(measured: Path, tmp_path: Path, content: str) -> None:
    (measured / "damaged.json").write_text(content)
    with refused(SifmarkError, "result-invalid") as caught:
        make_baseline("nightly", [str(measured)])
    assert "damaged.json" in caught.value.cause


def test_nothing_that_completed_is_no_baseline(tmp_path: Path) -> None:
    write_nights(tmp_path / "smoke", KEPT, configuration__smoke=True)
    with refused(SifmarkError, "result-missing"):
        make_baseline("nightly", [str(tmp_path / "smoke")])


def test_a_baseline_is_replaced_only_by_force(baselines: Path, measured: Path) -> None:
    before = (baselines / "nightly.json").read_bytes()
    with refused(UsageError, "baseline-exists"):
        keep(baselines, "nightly", measured)
    assert (baselines / "nightly.json").read_bytes() == before
    write_run(measured, FIRST, 99.0)
    keep(baselines, "nightly", measured, force=True)
    assert len(read_baseline(baselines, "nightly").repeats) == 7


def test_of_several_that_keep_the_same_name_only_one_succeeds(measured: Path, tmp_path: Path) -> None:
    baseline = make_baseline("nightly", [str(measured)]).baseline

    def kept(_: int) -> bool:
        try:
            write_baseline(baseline, tmp_path / "kept")
        except UsageError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(kept, range(8))) == 1
    assert read_baseline(tmp_path / "kept", "nightly").rows == 2


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../up", "a b", "x" * 101, "über", "a\n"])
def test_a_name_that_is_no_file_name_is_refused(baselines: Path, name: str) -> None:
    with pytest.raises(UsageError):
        baseline_file(baselines, name)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[]", b'{"schema_version": "2.0"}'])
def test_a_damaged_baseline_is_an_error(baselines: Path, content: bytes) -> None:
    (baselines / "nightly.json").write_bytes(content)
    with refused(SifmarkError, "document-invalid"):
        read_baseline(baselines, "nightly")


def test_a_baseline_without_the_unit_of_a_value_is_an_error(baselines: Path) -> None:
    document = json.loads((baselines / "nightly.json").read_text())
    del document["rows"][0]["units"]["throughput"]
    write_json(baselines / "nightly.json", document)
    with refused(SifmarkError, "document-invalid", "'throughput'"):
        read_baseline(baselines, "nightly")


def test_the_list_of_baselines(baselines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(baselines, "", listed=True, form="json")
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["rows"], row["runs"], row["hosts"]) == ("nightly", 2, 6, 2)
    keep(baselines, "", listed=True)
    assert "2026-03-01 to 2026-03-03" in capsys.readouterr().out
    keep(tmp_path / "nowhere", "", listed=True)
    out, err = capsys.readouterr()
    assert out == "" and "study.baseline NAME" in err


def test_the_results_of_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder also has records of jobs, which are no results."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(STUDY)
    with refused(UsageError, "result-missing"):
        keep(tmp_path / "kept", "mine", study="mine.toml")
    write_nights(tmp_path / "results" / "mine" / "here", KEPT)
    for name in ("jobs", ".hidden"):
        (tmp_path / "results" / "mine" / name).mkdir()
        (tmp_path / "results" / "mine" / name / "1.json").write_text("{}")
    keep(tmp_path / "kept", "mine", study="mine.toml")
    assert len(read_baseline(tmp_path / "kept", "mine").repeats) == 3


@pytest.mark.parametrize(("name", "paths", "study"), [("", [], ""), ("a", [], ""), ("a", [Path("b")], "c")])
def test_what_a_baseline_needs_is_asked_for(name: str, paths: list[Path], study: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        keep(tmp_path, name, *paths, study=study)
