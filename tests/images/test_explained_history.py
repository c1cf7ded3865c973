"""A history explained with kept images: found by build key, with the packages of their SBOM, and made to decide."""

from pathlib import Path

import pytest
from images.sites import Site, copy_project

from sifmark.core.settings import load_settings
from sifmark.studies.history.explain import kept_images

SETTINGS = ("--duration", "3", "--warmup-steps", "1", "--threads", "1", "--batch-size", "2", "--idle-seconds", "0")
STEP = "        with self.autocast():\n            loss"
SLOWER = '        __import__("time").sleep(0.5)\n'


def test_images_of_a_folder_are_found_once_with_their_packages(built: Site) -> None:
    (kept,) = kept_images([built.dist], load_settings()).values()
    assert kept.address == str(built.dist / f"{built.recipe}.sif") and kept.key.startswith("sha256:")
    packages = kept.packages()
    assert packages["torch"][0].isdigit() and "sifmark" not in packages
    assert len(packages) > 50


@pytest.mark.full
def test_two_real_images_decide_that_their_code_made_runs_slower(built: Site, tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    session = project / "entrypoints" / "devices" / "pytorch" / "shared" / "session.py"
    assert session.read_text().count(STEP) == 1
    session.write_text(session.read_text().replace(STEP, SLOWER + STEP))
    slower = built.using(SIFMARK_DIST=str(tmp_path / "dist"), PYTHONPATH=str(project))
    slower.build()
    nights, study = tmp_path / "nights", tmp_path / "why.toml"
    for site in (built, slower):
        site.inv("run", "image_compression-cpu", "--", *SETTINGS, *("--repeat", "4", "--output", f"{nights}/"))
    images = ("--images", str(built.dist), "--images", str(tmp_path / "dist"))
    allowed = [word for mark in ("busy", "stopped", "unsteady") for word in ("--allow", mark)]
    told = built.inv("study.history", str(nights), "--bisect", str(study), "--run", *images, *allowed).stdout
    assert "the image made the change, by its code" in told, told
