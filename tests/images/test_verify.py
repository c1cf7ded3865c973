"""The verify verb: it passes what is right and refutes what is not."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from images.sites import PLAIN_BUILD, Site, call, make_site

from sifmark.core.settings import load_settings
from sifmark.engines.apptainer.sif import read_sif
from sifmark.recipes.plan import make_plan

RECIPE = "ipu"  # the smallest


def verdicts(site: Site, name: str, **environment: str) -> tuple[int, dict[str, str], str]:
    """Exit code, outcome by stage, and everything said."""
    done = site.inv("verify", name, "--json", check=False, **environment)
    ((_, stages),) = json.loads(done.stdout).items()
    return done.returncode, {verdict["stage"]: verdict["outcome"] for verdict in stages}, done.stdout


@pytest.mark.matrix("apptainer", recipe="cpu")
def test_a_fresh_image_passes_every_stage(built: Site) -> None:
    code, outcomes, said = verdicts(built, "image_compression-cpu")
    assert (code, set(outcomes.values())) == (0, {"passed"})
    assert list(outcomes) == ["trust", "structure", "smoke", "golden"]
    assert "signature: none" in said and "provenance: of this image" in said


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site with the smallest image."""
    site = make_site(tmp_path_factory.mktemp("small"))
    site.inv("build", RECIPE)
    return site


@pytest.fixture
def copied(small: Site, site: Site) -> Path:
    """A copy of the image and its build record that a test may spoil, called by the smallest of the workloads."""
    site.dist.mkdir()
    shutil.copy(small.dist / f"{RECIPE}.sif.json", site.dist)
    image = site.dist / f"image_compression-{RECIPE}.sif"
    shutil.copy(small.dist / f"{RECIPE}.sif", image)
    return image


def test_one_changed_byte_is_found(site: Site, copied: Path) -> None:
    system = read_sif(copied).system
    with copied.open("r+b") as stream:
        stream.seek(system.offset + system.size // 2)
        byte = stream.read(1)
        stream.seek(-1, 1)
        stream.write(bytes([byte[0] ^ 1]))
    code, outcomes, said = verdicts(site, str(copied))
    assert (code, outcomes["trust"]) == (1, "failed")
    assert "its build recorded" in said


def test_another_base_than_the_recipe_pins_is_found(site: Site, copied: Path) -> None:
    sif = read_sif(copied)
    raw = sif.read(sif.metadata)
    digest = sif.labels()["org.opencontainers.image.base.digest"]
    spoiled = raw.replace(digest.encode(), f"sha256:{'0' * 64}".encode())
    assert spoiled != raw
    with copied.open("r+b") as stream:
        stream.seek(sif.metadata.offset)
        stream.write(spoiled)
    code, outcomes, said = verdicts(site, str(copied))
    assert (code, outcomes["trust"]) == (1, "failed")
    assert "pinned is" in said


@pytest.mark.full  # the gate has it without an image: trust/test_trust_checks.py
def test_without_a_record_trust_is_no_pass(site: Site, copied: Path) -> None:
    copied.with_name(f"{RECIPE}.sif.json").unlink()
    _, outcomes, said = verdicts(site, str(copied), PATH=str(site.folder))
    assert outcomes["trust"] == "skipped"
    assert "no record of its build" in said


@pytest.mark.full  # the gate has it without an image: trust/test_trust_checks.py
@pytest.mark.parametrize("record", ["", '{"identity": 7}'])
def test_a_damaged_record_fails_and_does_not_crash(site: Site, copied: Path, record: str) -> None:
    copied.with_name(f"{RECIPE}.sif.json").write_text(record)
    _, outcomes, said = verdicts(site, str(copied), PATH=str(site.folder))
    assert outcomes["trust"] == "failed"
    assert "is damaged" in said


@pytest.mark.full  # the gate has it in test_trust.py
def test_an_overlay_added_afterwards_is_found(site: Site, copied: Path) -> None:
    overlay = site.folder / "overlay"
    overlay.write_bytes(bytes(4096))
    options = ["--datatype", "4", "--parttype", "4", "--partfs", "2", "--partarch", "2"]
    call(["apptainer", "sif", "add", *options, copied, overlay])
    _, outcomes, said = verdicts(site, str(copied), PATH=str(site.folder))
    assert outcomes["trust"] == "failed"
    assert "an overlay changes what runs" in said


def test_a_cut_file_fails_and_does_not_crash(site: Site, copied: Path) -> None:
    with copied.open("r+b") as stream:
        stream.truncate(100_000)
    code, outcomes, _ = verdicts(site, str(copied))
    assert code == 1
    assert set(outcomes.values()) == {"failed"}


def test_a_foreign_image_that_runs_is_told_apart(site: Site) -> None:
    base = make_plan(RECIPE, load_settings(bases="stand-in")).base
    foreign = site.folder / "foreign.sif"
    call(["apptainer", "--quiet", *PLAIN_BUILD, "--no-https", foreign, f"docker://{base.pull}"])
    code, outcomes, said = verdicts(site, str(foreign))
    assert (code, set(outcomes.values())) == (1, {"failed"})
    assert "is it an image that sifmark built?" in said


def test_without_the_engine_stages_are_skipped_with_their_reason(built: Site) -> None:
    tools = built.folder / "no-engine"
    tools.mkdir(exist_ok=True)
    for tool in ("unsquashfs", "git"):
        (tools / tool).unlink(missing_ok=True)
        (tools / tool).symlink_to(shutil.which(tool) or "/bin/false")
    code, outcomes, said = verdicts(built, "resnet50-cpu", PATH=str(tools))
    assert code == 0, "a skipped stage is no failure, and never a pass"
    assert outcomes == {"trust": "passed", "structure": "skipped", "smoke": "skipped", "golden": "passed"}
    assert "Apptainer is not installed here" in said


def test_what_is_no_image_at_all_fails_and_does_not_crash(site: Site) -> None:
    code, outcomes, said = verdicts(site, "/etc/passwd")
    assert (code, set(outcomes.values())) == (1, {"failed"})
    assert "is not a SIF file" in said


def test_a_missing_image_says_how_to_build_it(site: Site) -> None:
    done: subprocess.CompletedProcess[str] = site.inv("verify", "resnet50-cpu", check=False)
    assert done.returncode == 1
    assert "sifmark build resnet50-cpu" in done.stderr
