"""Metering of commands and blocks: kernel files whose counters rise in real time, read by the real sampler."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.refusals import refused

import sifmark
from sifmark.commands.command_line import main
from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.schemas import errors_of
from sifmark.metering import SCHEMA, read_documents, sum_of_ranks

WATTS = (40.0, 60.0)  # of two packages
PERIOD = 0.01  # s
LAUNCH = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "here", "MASTER_PORT": "1"}


@pytest.fixture
def powercap(tmp_path: Path) -> Iterator[Path]:
    """Two packages that use 40 W and 60 W. Their counters are written in place, as the kernel's are read."""
    folder, begin, over, counters = tmp_path / "powercap", time.monotonic(), threading.Event(), []
    for number in range(len(WATTS)):
        zone = folder / f"intel-rapl:{number}"
        zone.mkdir(parents=True)
        (zone / "name").write_text(f"package-{number}\n")
        (zone / "max_energy_range_uj").write_text(f"{10**12}\n")
        counters.append(os.open(zone / "energy_uj", os.O_CREAT | os.O_WRONLY))

    def write() -> None:
        for counter, watts in zip(counters, WATTS, strict=True):
            os.pwrite(counter, f"{round(watts * 1e6 * (time.monotonic() - begin)):020}\n".encode(), 0)

    def keep_writing() -> None:
        while not over.wait(0.002):
            write()

    write()
    thread = threading.Thread(target=keep_writing)
    thread.start()
    yield folder
    over.set()
    thread.join()
    for counter in counters:
        os.close(counter)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.json"
    samples = [{"at": 0, "watts": [50]}, {"at": 0.3, "watts": [150]}, {"at": 600, "watts": [50]}]
    file.write_text(json.dumps({"scope": "board", "devices": ["card"], "update_period": PERIOD, "samples": samples}))
    return file


def sifmark_meter(*words: str, **variables: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "sifmark", "meter", *words]
    environment = {**os.environ, "PYTHONPATH": str(paths.CHECKOUT), **variables}
    return subprocess.Popen(argv, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_block_is_metered_by_counter(powercap: Path) -> None:
    begin = time.monotonic()
    with sifmark.meter(f"rapl:{powercap}", period=PERIOD) as energy:
        time.sleep(0.5)
    most = sum(WATTS) * (time.monotonic() - begin)
    document = energy.document
    assert list(errors_of(SCHEMA, document)) == [] and document["exit_code"] is None
    (read,) = document["meters"]
    assert read["source"] == "rapl" and read["method"] == "counter" and read["scope"] == "package"
    assert sum(WATTS) * 0.5 * 0.9 < energy.joules["rapl"] < most  # type: ignore[operator]
    assert energy.watts["rapl"] == pytest.approx(sum(WATTS), rel=0.1)
    assert read["power_peak"]["value"] >= 0.9 * energy.watts["rapl"]  # type: ignore[operator]
    each = [device["energy"]["value"] for device in read["devices"]]
    assert each[1] / each[0] == pytest.approx(WATTS[1] / WATTS[0], rel=0.1)
    assert sum(each) == pytest.approx(energy.joules["rapl"])


def test_a_block_that_fails_is_metered_and_its_error_is_passed_on(trace: Path) -> None:
    with pytest.raises(ZeroDivisionError), sifmark.meter(f"replay:{trace}", period=PERIOD) as energy:
        time.sleep(0.3)
        raise ZeroDivisionError
    assert energy.joules["replay"]


def test_the_peak_is_the_largest_reading_within_the_block(trace: Path) -> None:
    with sifmark.meter(f"replay:{trace}", period=PERIOD) as energy:
        time.sleep(0.6)
    (read,) = energy.document["meters"]
    assert read["power_peak"] == {"value": 150.0, "unit": "W"} and read["peak_method"] == "reading"
    assert 50 * 0.6 < energy.joules["replay"] < 150 * 0.6 and read["simulated"]  # type: ignore[operator]


def test_before_the_block_has_ended_nothing_is_known(trace: Path) -> None:
    with sifmark.meter(f"replay:{trace}") as energy, pytest.raises(RuntimeError, match="has not ended"):
        assert energy.joules


def test_a_launcher_that_says_half_is_refused_before_the_block(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID"):
        monkeypatch.setenv(name, "0")
    with refused(UsageError, "invalid-option", "SLURM_PROCID='' is no number"), sifmark.meter(f"replay:{trace}"):
        pytest.fail("the block ran")


def test_a_short_block_has_no_energy_but_the_reason(trace: Path) -> None:
    with sifmark.meter(f"replay:{trace}", period=PERIOD) as energy:
        pass
    assert energy.joules == {"replay": None}
    assert "shorter than 20 periods" in energy.document["meters"][0]["energy"]["reason"]


def test_several_meters_are_read_and_not_added(powercap: Path, trace: Path) -> None:
    with sifmark.meter(f"rapl:{powercap}", f"replay:{trace}", "rapl:/nowhere", period=PERIOD) as energy:
        time.sleep(0.3)
    assert set(energy.joules) == {"rapl", "replay"}
    (missing,) = energy.document["missing"]
    assert missing["meter"] == "rapl:/nowhere" and "no package" in missing["reason"] and not missing["elsewhere"]


def test_every_meter_is_tried_and_each_that_is_missing_has_a_reason() -> None:
    with sifmark.meter() as energy:
        pass
    found = {each["source"] for each in energy.document["meters"]}
    named = {each["meter"] for each in energy.document["missing"]}
    assert len(named) + len(found) >= 8 and "nvml" in named | found
    assert list(errors_of(SCHEMA, energy.document)) == []


def test_a_command_keeps_its_streams_and_its_exit_code(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "energy.json"
    options = ("--meter", f"replay:{trace}", "--period", str(PERIOD), "--output", str(target))
    process = sifmark_meter(*options, "--", sys.executable, "-c", "import time; print('hi'); time.sleep(.4); exit(5)")
    out, err = process.communicate()
    assert (process.returncode, out) == (5, "hi\n")
    assert "exit code 5" in err and "replay (simulated): " in err and "peak 150.0 W; board, 1 device" in err
    document = json.loads(target.read_text())
    assert list(errors_of(SCHEMA, document)) == [] and document["exit_code"] == 5
    assert document["command"][0] == sys.executable


def test_nothing_but_the_command_writes_to_its_output() -> None:
    out, err = sifmark_meter("-v", "--", "echo", "hi").communicate()
    assert out == "hi\n" and "rapl: " in err
    assert all(line.startswith(("metered ", "  ")) for line in err.splitlines()), "a library of a vendor spoke"


def test_a_signal_reaches_the_command_and_what_it_used_is_known(trace: Path) -> None:
    process = sifmark_meter(
        "--meter", f"replay:{trace}", "--period", str(PERIOD), "--", "sh", "-c", "echo up; exec sleep 60"
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    time.sleep(0.4)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM and " J, mean " in err


def test_of_the_ranks_of_a_node_one_counts(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "energy"
    folder.mkdir()
    options = ("--meter", f"replay:{trace}", "--period", str(PERIOD), "--output", f"{folder}/", "--", "sleep", "1.5")
    ranks = [sifmark_meter(*options, **LAUNCH, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(3)]
    assert {rank.wait() for rank in ranks} == {0}
    documents = read_documents([str(folder)])
    assert len(documents) == 3
    assert sorted(len(each["meters"]) for each in documents.values()) == [0, 0, 1]
    total = sum_of_ranks(documents)
    (counted,) = (each for document in documents.values() for each in document["meters"])
    assert total["meters"][0]["energy"] == counted["energy"] and (total["ranks"], total["hosts"]) == (3, 1)


def test_a_block_leaves_the_document_of_its_rank(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**LAUNCH, "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with sifmark.meter(f"replay:{trace}", period=PERIOD) as energy:
        with pytest.raises(RuntimeError, match="has not ended"):
            energy.write(f"{tmp_path}/ranks/")
        time.sleep(0.3)
    with refused(UsageError, "invalid-option", "each of 3 ranks would write"):
        energy.write(str(tmp_path / "energy.json"))
    file = energy.write(f"{tmp_path}/ranks/")
    assert file.name.endswith("-1.json") and json.loads(file.read_text()) == energy.document
    (total,) = sum_of_ranks(read_documents([str(file.parent)]))["meters"]
    assert total["energy"] == {"value": None, "unit": "J", "reason": "1 of 3 ranks left a document"}


def rank(number: int, host: str, joules: float | None = 10.0, device: str = "card", **changes: Any) -> dict[str, Any]:
    reason = {} if joules is not None else {"reason": "too short"}
    energy = {"value": joules, "unit": "J", **reason}
    watts = {"value": joules, "unit": "W", **reason}
    nothing = {"value": None, "unit": "1", "reason": "none"}
    read = {"source": "nvml", "scope": "package", "simulated": False, "method": "counter", "averaging_time": nothing}
    read |= {"sampling_period_seconds": 0.1, "update_period_seconds": 0.1, "samples": 9, "failed_readings": 0}
    read |= {"counter_integral_difference": nothing, "energy": energy, "power_mean": watts, "power_peak": watts}
    read |= {"peak_method": "reading", "devices": [{"name": device, "energy": energy}]}
    launch = {"launcher": "Slurm", "step": ["7", "0"], "task": number, "tasks": 2}
    document = {"schema_version": "1.0", "host": host, "started": "2026-11-29T08:00:00.000Z", "seconds": 1.0}
    document |= {"launch": launch, "command": ["a"], "exit_code": 0, "meters": [read], "missing": []}
    return {**document, **changes}


def test_energies_of_hosts_add_up() -> None:
    (total,) = sum_of_ranks({"a": rank(0, "n1"), "b": rank(1, "n2", 5.0)})["meters"]
    assert total["energy"] == {"value": 15.0, "unit": "J"} and total["devices"] == 2


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([rank(0, "n1"), rank(1, "n2", None)], "n2: too short"),
        ([rank(0, "n1"), rank(1, "n2", meters=[])], "n2 has no meter nvml"),
        ([rank(0, "n1")], "1 of 2 ranks left a document"),
    ],
)
def test_a_sum_that_lacks_a_part_is_none(documents: list[dict[str, Any]], said: str) -> None:
    (total,) = sum_of_ranks({str(number): each for number, each in enumerate(documents)})["meters"]
    assert total["energy"] == {"value": None, "unit": "J", "reason": said}


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        (rank(1, "n1"), "card of n1 was counted by several ranks"),
        (rank(1, "n2", launch=None), "the documents are of 2 launches"),
    ],
)
def test_what_does_not_add_up_is_refused(other: dict[str, Any], cause: str) -> None:
    with refused(SifmarkError, "document-invalid", cause):
        sum_of_ranks({"a": rank(0, "n1"), "b": other})


def test_documents_of_others_are_refused(tmp_path: Path) -> None:
    with refused(UsageError, "file-unreadable"):
        read_documents([str(tmp_path)])
    with refused(UsageError, "file-unreadable", "nowhere does not read"):
        read_documents([str(tmp_path / "nowhere")])
    (tmp_path / "a.json").write_text("{")
    with refused(UsageError, "document-invalid", "a.json is no JSON"):
        read_documents([str(tmp_path)])
    with refused(UsageError, "document-invalid", "a: seconds"):
        sum_of_ranks({"a": rank(0, "n1", seconds="1")})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the command to meter is missing"),
        (["--meter", "rpl", "--", "true"], "no meter 'rpl'"),
        (["--period", "0", "--", "true"], "not 0"),
        (["--sum", "energy", "--", "true"], "--sum takes no command"),
        (["--output", "energy.json", "--", "true"], "each of 3 ranks would write energy.json"),
    ],
)
def test_what_cannot_be_metered_is_refused_before_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    for name, value in {**LAUNCH, "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert main(["meter", *words]) == 2
    assert said in capsys.readouterr().err
