"""Kept images as a history explains changes with them: found by build key, with the packages of their SBOM."""

from images.sites import Site

from sifmark.core.settings import load_settings
from sifmark.studies.history.explain import kept_images


def test_images_of_a_folder_are_found_once_with_their_packages(built: Site) -> None:
    (kept,) = kept_images([built.dist], load_settings()).values()
    assert kept.address == str(built.dist / f"{built.recipe}.sif") and kept.key.startswith("sha256:")
    packages = kept.packages()
    assert packages["torch"][0].isdigit() and "sifmark" not in packages
    assert len(packages) > 50
