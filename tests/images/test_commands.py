"""The other commands, as they are typed in a clone and from an installed wheel."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from images.sites import Site, call

from sifmark.core import paths
from sifmark.datasets.image_files import grey_png


def test_doctor_finds_this_host_ready(built: Site) -> None:
    findings = json.loads(built.inv("doctor", "--json").stdout)
    subjects = {finding["name"]: finding["status"] for finding in findings}
    for subject in ("Apptainer", "user namespaces", "fuse", "/etc/subuid", "cache folder", "dist folder",
                    "temporary folder", "devices"):  # fmt: skip
        assert subject in subjects
    assert subjects["Apptainer"] == "passed"
    assert any(name.startswith("registry of cpu") for name in subjects), "with all recipes of the same registry"


@pytest.mark.full  # the gate has it without an image: doctor/test_doctor_image.py; for real: test_docs.py
def test_doctor_asks_an_image_what_it_sees(built: Site) -> None:
    listed = json.loads(built.inv("doctor", "--image", "cpu", "--json").stdout)
    findings = {finding["name"]: finding for finding in listed}
    assert findings["run"]["detail"].startswith("completed") and findings["device"]["detail"].startswith("1 x ")
    assert findings["framework"]["detail"].startswith("pytorch 2.") and "topology" in findings
    assert findings["meter"]["status"] in ("passed", "warning")


def test_doctor_without_engine_says_what_to_do(site: Site) -> None:
    done = site.inv("doctor", check=False, PATH="/nonexistent")
    assert done.returncode == 1
    assert "failed  Apptainer: not installed" in done.stdout
    assert "remedy: ci/setup/apptainer" in done.stdout


def test_run_passes_arguments_and_exit_code(built: Site) -> None:
    output = built.folder / "a result.json"
    done = built.inv(
        "run", "image_compression-cpu", "--", "--smoke", "--site", "two words; $HOME", "--output", str(output)
    )
    assert done.stdout == ""
    assert json.loads(output.read_text())["site"] == "two words; $HOME"
    assert built.inv("run", "resnet50-cpu", "--", "--batch-size", "0", check=False).returncode == 2


@pytest.mark.full  # the gate: inside/runs/test_output.py, and for real test_publishing.py
def test_run_fills_a_folder_below_the_one_where_the_user_stands(built: Site) -> None:
    done = built.inv("run", "image_compression-cpu", "--", "--smoke", "--repeat", "2", "--output", "two/of them/")
    assert done.stdout == ""
    paths = sorted((built.folder / "two" / "of them").iterdir())
    assert len(paths) == 2
    assert all(path.name.startswith("image_compression-cpu-") for path in paths)
    assert "2 valid" in built.inv("results.validate", "two").stderr


def test_validate_and_show(built: Site) -> None:
    folder = built.folder / "results"
    folder.mkdir(exist_ok=True)
    good = folder / "good.json"
    built.inv("run", "image_compression-cpu", "--", "--smoke", "--output", str(good))
    assert "1 valid" in built.inv("results.validate", str(folder)).stderr
    assert "images/s" in built.inv("results.show", str(good)).stdout
    document = json.loads(good.read_text())
    document["colour"] = "blue"
    (folder / "bad.json").write_text(json.dumps(document))
    (folder / "worse.json").write_text('{"schema_version": "1.0", "x": NaN}')
    (folder / "newer.json").write_text('{"schema_version": "7.0"}')
    done = built.inv("results.validate", f"{folder}/*.json", check=False)
    assert done.returncode == 1
    assert f"valid  {good}" in done.stdout
    assert "colour" in done.stdout
    assert "worse.json\n  is not JSON: " in done.stdout
    assert "'7.0' is of a newer sifmark" in done.stdout
    assert built.inv("results.validate", "no/such/*.json", check=False).returncode == 2


def test_audit_gives_the_image_s_own_list_of_packages_to_a_scanner(built: Site, tmp_path: Path) -> None:
    scanner = tmp_path / "grype"
    scanner.write_text('#!/bin/sh\ncat "${1#sbom:}"\nexit 2\n')
    scanner.chmod(0o755)
    done = built.inv("image.audit", "resnet50-cpu", check=False, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 1 and "resnet50-cpu: grype reports vulnerabilities" in done.stderr
    assert "jsonschema" in {component["name"] for component in json.loads(done.stdout)["components"]}


def test_clean_takes_products_and_leaves_results(site: Site) -> None:
    site.build()
    (site.folder / "results").mkdir()
    (site.folder / "results" / "kept.json").write_text("{}")
    (site.dist / "not-ours.sif").write_text("")
    site.inv("clean")
    assert sorted(path.name for path in site.dist.glob("[!.]*.sif*")) == ["not-ours.sif"]
    assert (site.folder / "results" / "kept.json").exists()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the extra `build`, in an environment that has nothing else: its folder of programs."""
    folder = tmp_path_factory.mktemp("wheel")
    python = folder / "environment" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    call([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, paths.ROOT], cwd=folder)
    call([sys.executable, "-m", "venv", "--without-pip", folder / "environment"])
    constraints = paths.ROOT / "ci" / "setup" / "constraints.txt"
    (wheel,) = folder.glob("*.whl")
    install: list[str | Path] = [*pip, "--python", python, "install", "--constraint", constraints]
    call([*install, wheel], cwd=folder)
    render = (python.with_name("sifmark"), "image.render", "cpu")
    done = call([*render], check=False, env=without_python(os.environ), cwd=folder)
    assert done.returncode == 1 and "remedy: pip install 'sifmark[build]'" in done.stderr
    call([*install, f"{wheel}[build]"], cwd=folder)
    return python.parent


@pytest.mark.full
def test_a_wheel_in_an_environment_of_its_own_has_the_same_verbs_without_the_clone(
    alone: Path, built: Site, site: Site
) -> None:
    # Nothing is at hand but the base: the wheels are fetched and unpacked by what came with ours.
    cache = site.folder / "cache"
    fresh = site.with_cache(cache)

    def sifmark(*words: str, at: Site = built, check: bool = True) -> subprocess.CompletedProcess[str]:
        return call([alone / "sifmark", *words], check=check, env=without_python(at.environment), cwd=at.folder)

    call([alone / "python", "-m", "pip", "check"], env=without_python(os.environ))
    assert "verify" in sifmark("--help").stdout
    where = call([alone / "python", "-c", "from sifmark.core import paths; print(paths.ROOT)"],
                 env=without_python(os.environ), cwd=site.folder).stdout  # fmt: skip
    assert where.startswith(str(alone.parent)) and where.endswith("/sifmark/bundle\n")
    states = {row["name"]: row["state"] for row in json.loads(sifmark("list", "--json").stdout)["images"]}
    assert states["resnet50-cpu"] == "built", "the same inputs give the same build key"
    assert "up to date" in sifmark("build", "resnet50-cpu").stdout
    sifmark("build", "resnet50-cpu", at=fresh)
    assert list((cache / "wheels").rglob("torch-*.whl"))
    sifmark("verify", "resnet50-cpu", at=fresh)
    sifmark("run", "resnet50-cpu", "--", "--smoke", "--output", "result.json", at=fresh)
    assert "1 valid" in sifmark("results.validate", "result.json", at=fresh).stderr


@pytest.mark.full
def test_a_wheel_without_the_extra_data_says_what_needs_it(alone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "images" / "cat"
    folder.mkdir(parents=True)
    (folder / "a.png").write_bytes(grey_png(3, 2, bytes(6)))
    call([alone / "sifmark", "data.prepare", "images", "shards"], env=without_python(os.environ), cwd=tmp_path)
    records = ["data.prepare", "images", "records", "--format", "records"]
    done = call([alone / "sifmark", *records], check=False, env=without_python(os.environ), cwd=tmp_path)
    assert done.returncode == 1 and "remedy: pip install 'sifmark[data]'" in done.stderr


def without_python(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment that leads no Python to modules from elsewhere."""
    return {name: value for name, value in environment.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
