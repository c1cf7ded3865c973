"""Studies on every node: a system for each, to which Slurm is bound, and what is refused."""

from pathlib import Path

import pytest
import tomlkit
from unit.refusals import refused

from sifmark.commands.study_analysis import write_study
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.studies.analysis.every_node import NodeSystem, nodes_of_partition, study_on_nodes
from sifmark.studies.expand import expand
from sifmark.studies.load import load_study

OWN = """title = "Ours"
[[system]]
name = "here"
image = "cuda"
devices = 4
slurm = { account = "a", extra = ["--reservation=r"] }
[[run]]
name = "matmul"
workload = "matmul"
systems = ["here"]
"""


def test_each_node_is_a_system_with_its_node_in_slurm_and_the_study_stays_valid(tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text(study_on_nodes("screen", ["n1", "n2"], NodeSystem("cuda", 4, "gpu")))
    study = load_study(str(file))
    assert [(system.name, system.image, system.devices) for system in study.systems] == [
        ("n1", "cuda", 4),
        ("n2", "cuda", 4),
    ]
    assert study.systems[1].slurm == {"extra": ["--nodelist=n2"], "partition": "gpu"}
    runs = expand(study, study.systems)
    assert {run.system for run in runs} == {"n1", "n2"} and all(run.nodes == 1 for run in runs)
    assert {run.devices for run in runs if run.group in ("all-reduce", "resnet50")} == {4}
    small = load_study(str(file), "small")
    assert [(system.name, system.image) for system in small.systems] == [("n1", "cpu"), ("n2", "cpu")]


def test_devices_replace_those_of_a_variant_s_own_system(tmp_path: Path) -> None:
    variant = '[variant.few]\nsystem = [{ name = "few", image = "cuda", devices = 2 }]\n'
    (tmp_path / "ours.toml").write_text(OWN + variant)
    file = tmp_path / "all.toml"
    file.write_text(study_on_nodes(str(tmp_path / "ours.toml"), ["n1"], NodeSystem(devices=8)))
    assert [load_study(str(file), variant).systems[0].devices for variant in ("", "few")] == [8, 8]


def test_what_a_system_of_the_study_has_stays(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(OWN)
    document = tomlkit.parse(study_on_nodes(str(tmp_path / "ours.toml"), ["n1"], NodeSystem())).unwrap()
    assert document["system"] == [
        {
            "name": "n1",
            "nodes": 1,
            "image": "cuda",
            "devices": 4,
            "slurm": {"account": "a", "extra": ["--reservation=r", "--nodelist=n1"]},
        }
    ]
    assert "systems" not in document["run"][0]


def test_options_of_the_site_are_kept_beside_the_node(tmp_path: Path) -> None:
    text = study_on_nodes("screen", ["n1"], NodeSystem("cpu", extra=("--reservation=r",)))
    assert tomlkit.parse(text).unwrap()["system"][0]["slurm"]["extra"] == ["--reservation=r", "--nodelist=n1"]


@pytest.mark.parametrize(
    ("nodes", "image"), [([], "cpu"), (["n 1"], "cpu"), (["x" * 65], "cpu"), (["-n"], "cpu"), (["n1"], "")]
)
def test_bad_nodes_and_a_missing_image_are_refused(nodes: list[str], image: str) -> None:
    with pytest.raises(UsageError):
        study_on_nodes("screen", nodes, NodeSystem(image))


def test_a_broken_study_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("title = [\n")
    with refused(UsageError, "study-invalid", "broken.toml"):
        study_on_nodes(str(tmp_path / "broken.toml"), ["n1"], NodeSystem("cpu"))


def fake_sinfo(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int = 0) -> None:
    program = folder / "sinfo"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_nodes_out_of_service_are_left_out_with_their_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sinfo(tmp_path, monkeypatch, "n1 idle\nn2 allocated\nn3 drained\nn4 down*\nn5 idle*\nn6 mixed")
    assert nodes_of_partition("all") == (["n1", "n2", "n6"], {"n3": "drained", "n4": "down*", "n5": "idle*"})


def test_without_slurm_the_nodes_have_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sinfo(tmp_path, monkeypatch, "no such partition", code=1)
    with pytest.raises(SifmarkError) as caught:
        nodes_of_partition("nosuch")
    assert "--nodes" in caught.value.remedy


def test_the_study_is_written_or_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str], site: Settings) -> None:
    target = tmp_path / "all.toml"
    write_study("screen", site, "n[1-3]", "", "cpu", 2, str(target))
    write_study("screen", site, "n[1-3]", "", "cpu", 2)
    assert capsys.readouterr().out == target.read_text().rstrip("\n") + "\n"
    for nodes, output in (("", ""), ("n1", "all.txt")):
        with pytest.raises(UsageError):
            write_study("screen", site, nodes, "", "cpu", 0, output)
