"""What the Docker engine makes of words and events; what it builds and runs is tested on a real one, in images/."""

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.refusals import refused

from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings, load_settings
from sifmark.engines import Forecast
from sifmark.engines.apptainer import engine
from sifmark.engines.apptainer.engine import Apptainer
from sifmark.engines.docker import inspection
from sifmark.engines.docker.client import (
    BaseUnavailableError,
    DockerDaemon,
    DockerError,
    EngineUnreachableError,
    OutOfSpaceError,
    follow,
)
from sifmark.engines.docker.engine import Docker, stage_tag
from sifmark.recipes.hardware import Access, all_hardware
from sifmark.recipes.labels import RECIPE
from sifmark.recipes.plan import make_plan


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("write /data/x: no space left on device", OutOfSpaceError),
        ("manifest for 127.0.0.1:5077/x@sha256:0 not found: manifest unknown", BaseUnavailableError),
        ("Get http://127.0.0.1:1/v2/: dial tcp 127.0.0.1:1: connect: connection refused", BaseUnavailableError),
        ("COPY failed: file not found in build context", DockerError),
    ],
)
def test_a_failed_build_is_an_event_and_becomes_an_error_of_its_kind(said: str, kind: type, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(DockerError) as caught:
        follow([{"stream": "Step 1/2 : FROM x\n"}, {"errorDetail": {"message": said}, "error": said}], log, None)
    assert type(caught.value) is kind
    assert said in caught.value.cause and str(log) in caught.value.cause and caught.value.remedy
    assert log.read_text() == "Step 1/2 : FROM x\n"


def test_a_build_that_names_no_image_is_no_success() -> None:
    with refused(DockerError, "engine-answer-unknown"):
        follow([{"stream": "Step 1/1 : FROM x\n"}], None, None)


def test_the_last_image_is_the_answer() -> None:
    events: list[dict[str, Any]] = [{"aux": {"ID": "sha256:1"}}, {"stream": " \n"}, {"aux": {"ID": "sha256:2"}}]
    assert follow(events, None, None) == "sha256:2"


def test_no_engine_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with refused(EngineUnreachableError, "engine-unreachable", "none.sock") as caught:
        DockerDaemon(time_limit=1).version()
    assert "ci/setup/docker" in caught.value.remedy
    assert Docker(load_settings()).version() is None


def test_commands_have_no_network_unless_the_device_is_on_one() -> None:
    tool = Docker(load_settings())
    plain = tool.command("sifmark:cpu", "run", ["resnet50"])
    assert plain == ["docker", "run", "--rm", "--ipc=host", "--network=none", "sifmark:cpu", "resnet50"]
    assert "--network=none" not in tool.command("sifmark:ipu", "run", [], ["--network=host"])
    assert tool.command("sifmark:cpu", "test")[-2:] == ["sifmark:cpu", "--check"]
    assert tool.command("sifmark:cpu", "exec", ["ls", "-l"])[-3:] == ["--entrypoint=ls", "sifmark:cpu", "-l"]


@pytest.fixture()
def unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has said which devices a run may use."""
    for name in [name for hardware in all_hardware() for name in hardware.selection]:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("unchosen")
def test_a_container_is_told_which_devices_a_run_may_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As Slurm says it, or a user: without it Docker would use the first of all."""
    here, partition = Access(("/dev/null",), docker=("--gpus=all",)), tmp_path / "partition.conf"
    partition.touch()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(partition))
    assert Docker(load_settings()).device_flags(here)[-3:] == [
        "--env=CUDA_VISIBLE_DEVICES",
        "--env=IPUOF_CONFIG_PATH",
        f"--volume={partition}:{partition}:ro",
    ]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Apptainer(load_settings()).isolation_flags(Access(("/dev/null",), docker=("--network=host",))) == [
        "--containall",
        "--cleanenv",
        *("--env", "CUDA_VISIBLE_DEVICES=3,5", "--env", f"IPUOF_CONFIG_PATH={partition}"),
    ]
    assert Apptainer(load_settings()).device_flags(here) == [
        "--bind",
        "/dev/null",
        "--bind",
        f"{partition}:{partition}:ro",
    ]
    assert Apptainer(load_settings()).device_flags(replace(here, apptainer=("--nv",)))[:1] == ["--nv"]
    monkeypatch.setenv("IPUOF_CONFIG_PATH", "nowhere")
    assert Docker(load_settings()).device_flags(here)[-1] == "--env=IPUOF_CONFIG_PATH"


@pytest.mark.usefixtures("unchosen")
def test_devices_are_passed_where_they_are() -> None:
    tool, null = Docker(load_settings()), Path("/dev/null").stat().st_gid
    groups = [f"--group-add={null}"] if null else []
    assert tool.device_flags(Access(("/dev/none*",), docker=("--cap-add=IPC_LOCK",))) == []
    assert tool.device_flags(Access(("/dev/null",), docker=("--cap-add=IPC_LOCK",))) == [
        "--device=/dev/null",
        *groups,
        "--cap-add=IPC_LOCK",
    ]
    assert tool.device_flags(Access(("/dev/null",), docker=("--gpus=all",))) == [*groups, "--gpus=all"]


@pytest.mark.usefixtures("unchosen")
def test_what_is_isolated_has_no_network_unless_the_device_is_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    docker, apptainer = Docker(load_settings()), Apptainer(load_settings())
    on_network = Access(("/dev/null",), docker=("--network=host",))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert apptainer.isolation_flags(None) == ["--containall", "--cleanenv", "--net", "--network=none"]
    assert apptainer.isolation_flags(on_network) == ["--containall", "--cleanenv"]
    without = docker.command("sifmark:cpu", "test", [], docker.isolation_flags(None))
    assert [word for word in without if word.startswith("--net")] == ["--network=none"]
    assert "--user=65534:65534" in without and "--cap-drop=ALL" in without
    options = [*docker.isolation_flags(on_network), *docker.device_flags(on_network)]
    words = docker.command("sifmark:ipu", "test", [], options)
    assert [word for word in words if word.startswith("--net")] == ["--network=host"]  # Docker refuses two


@pytest.mark.usefixtures("unchosen")
@pytest.mark.parametrize(
    ("capabilities", "flags"),
    [
        ("000001ffffffffff", ["--security=uid:65534", "--security=gid:65534:1"]),
        ("000001fffeffffff", ["--security=uid:65534", "--security=gid:65534:1"]),  # without CAP_SYS_RESOURCE
        ("00000000a80425fb", ["--no-privs"]),  # in a container
    ],
)
def test_root_starts_what_it_does_not_trust_as_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capabilities: str, flags: list[str]
) -> None:
    """Files of the host that Apptainer shows, such as those in /proc and /sys, are root's to write."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine, "_capabilities", lambda: int(capabilities, 16))
    monkeypatch.setattr(Access, "groups", lambda _: [1])
    apptainer, access = Apptainer(load_settings()), Access(("/dev/null",))
    isolated = ["--containall", "--cleanenv", *flags, "--net", "--network=none"]
    assert apptainer.isolation_flags(access) == isolated
    words = apptainer.command("a.sif", "test", [], isolated)
    assert ("--userns" in words) == ("--no-privs" in flags), "who is another user has no right that it would need"
    assert apptainer.isolation_flags(access, variables=True)[:3] == ["--contain", "--pid", "--ipc"]


def test_a_device_is_on_the_network_only_where_it_is() -> None:
    flags = ("--network=host",)
    assert Access(("/dev/null",), docker=flags).is_on_network()
    assert not Access(("/dev/null",), docker=("--gpus=all",)).is_on_network()
    assert not Access(("/dev/none*",), docker=flags).is_on_network()


def test_an_archive_is_read_from_blocks_as_they_come() -> None:
    from sifmark.engines.docker.client import stream_of

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name in ("a", "b"):
            member = tarfile.TarInfo(name)
            member.size, member.mode = 70_000, 0o644
            archive.addfile(member, io.BytesIO(bytes(70_000)))
    data = raw.getvalue()
    blocks = iter([data[at : at + 999] for at in range(0, len(data), 999)])
    with tarfile.open(fileobj=stream_of(blocks), mode="r|") as archive:
        assert [(member.name, member.size) for member in archive] == [("a", 70_000), ("b", 70_000)]


class StandInDaemon(DockerDaemon):
    """Knows one image by some names; without names by all."""

    def __init__(self, names: tuple[str, ...] | None = None, **attributes: object) -> None:
        super().__init__(time_limit=1)
        self.names = names
        self.image = {"Id": "", "Size": 0, "Config": {}, "RootFS": {"Layers": []}, **attributes}

    def attributes(self, address: str) -> dict[str, Any] | None:
        return self.image if self.names is None or address in self.names else None


def test_a_build_needs_no_room_for_images_here(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine stores images itself; only the layer of wheels goes into the cache on the way."""
    from sifmark.engines.docker import engine

    monkeypatch.setattr(engine, "cached_size", lambda *_: 50)
    docker = Docker(site)
    plan = make_plan("cpu", docker.settings)
    docker.daemon = StandInDaemon(names=(plan.base.pull,), Size=1000)
    assert docker.forecast(plan) == Forecast(size=1150, cached=150)
    docker.daemon = StandInDaemon(names=(stage_tag(plan),), Size=1100)
    assert docker.forecast(plan) == Forecast(size=1100)
    docker.daemon = StandInDaemon(names=())
    assert docker.forecast(plan) == Forecast(cached=150)
    monkeypatch.setattr(engine, "cached_size", lambda *_: None)
    assert docker.forecast(plan) == Forecast()


@pytest.mark.parametrize("config", [None, {}, {"Labels": None, "Env": None}])
def test_an_image_that_says_nothing_of_itself_is_read(config: object, site: Settings) -> None:
    docker = Docker(site)
    docker.daemon = StandInDaemon(Config=config, RootFS={"Type": "layers"})
    info = docker.image_info("sifmark:cpu")
    assert info is not None and (info.labels, info.workload) == ({}, None)
    assert docker.inspect("sifmark:cpu").layers == []


@pytest.mark.parametrize("field", ["Labels", "Entrypoint", "Env"])
def test_a_configuration_of_megabytes_reaches_no_engine(field: str, site: Settings) -> None:
    docker, long = Docker(site), "a" * (1 << 20)
    docker.daemon = StandInDaemon(Config={field: {"x": long} if field == "Labels" else [long]})
    for look in (docker.pinned, docker.image_info, docker.inspect):
        with refused(SifmarkError, "not-sifmark-image", "longer than") as caught:
            look("sifmark:cpu")
        assert len(str(caught.value)) < 1000 and "docker image rm sifmark:cpu" in caught.value.remedy


def test_a_recipe_that_is_not_here_is_no_part_of_a_path(site: Settings) -> None:
    docker = Docker(site)
    secret = site.cache / "docker" / "papers" / "x" / "provenance.json"
    secret.parent.mkdir(parents=True)
    secret.write_text("{}")
    for recipe in ("x", "..", "../papers/x", "a" * 5000):
        docker.daemon = StandInDaemon(Config={"Labels": {RECIPE: recipe}})
        assert docker.inspect("sifmark:cpu").attestations() == {}


@pytest.mark.parametrize("published", [True, False])
def test_where_an_image_is_published_is_told_with_the_host(published: bool, tmp_path: Path) -> None:
    digest = f"@sha256:{'0' * 64}"
    hosts = ["127.0.0.1:5000/images/cpu", "registry.example/cpu", "docker.io/user/cpu"]
    daemon = StandInDaemon(RepoDigests=[f"{name}{digest}" for name in (*hosts[:2], "user/cpu")] if published else None)
    image = inspection.DockerInspection("sifmark:cpu", daemon, str, tmp_path)
    assert image.references == ([f"{name}{digest}" for name in hosts] if published else [])
