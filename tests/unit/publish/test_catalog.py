"""The catalog of a store: what of strangers' words gets into its page, and what a registry does not show."""

import json
from datetime import UTC, datetime

import pytest

from sifmark.commands.registry import catalog
from sifmark.core.errors import RegistryError, SifmarkError
from sifmark.core.files import sha256_file
from sifmark.core.settings import Settings
from sifmark.publish.catalog import COLUMNS, catalog_document, catalog_rows
from sifmark.publish.catalog_page import catalog_page
from sifmark.publish.stores import PublishedImage, open_store, publish
from sifmark.recipes.recipe import recipe_names

FIRST, *OTHERS = recipe_names()
NOW = datetime(2026, 11, 26, 5, 0, tzinfo=UTC)


class Listing:
    """A store that has some images, and answers with a status for all others."""

    def __init__(self, images: dict[str, PublishedImage], status: int = 404) -> None:
        self.images, self.status = images, status

    def reference(self, name: str) -> str:
        return f"registry.example/x/{name}:1"

    def resolve(self, name: str) -> PublishedImage:
        if name in self.images:
            return self.images[name]
        raise RegistryError("answers", "log in", self.status, code="registry-refused")


def image_of(tmp_path, **annotations: str) -> PublishedImage:
    return publish(tmp_path / "x.sif", f"sha256:{'0' * 64}", 1, annotations)


def test_what_an_annotation_says_is_text_in_the_page(tmp_path) -> None:
    image = image_of(tmp_path, **{"org.opencontainers.image.version": "<script>alert(1)</script>"})
    page = catalog_page(catalog_document(Listing({FIRST: image})), "docker pull ", ["<b>.pub"], NOW)
    assert page.count("<script") == 1 and "&lt;script&gt;alert(1)" in page
    assert f"docker pull registry.example/x/{FIRST}:1" in page
    assert f"sifmark registry.pull {FIRST} --registry registry.example/x<" in page
    assert "Trusted keys of this site: <code>&lt;b&gt;.pub</code>" in page and "Written 2026-11-26 05:00 UTC" in page


def test_a_page_shows_short_hashes_and_warns_of_test_bases(tmp_path) -> None:
    digest = f"sha256:{'0123456789abcdef' * 4}"
    image = image_of(tmp_path, **{"org.sifmark.identity": digest, "org.sifmark.stand-in": "true"})
    page = catalog_page(catalog_document(Listing({FIRST: image})), "apptainer pull oras://", [], NOW)
    assert f'<code title="{digest}">0123456789ab</code>' in page
    assert "test base: for tests only" in page and "not signed" in page and "This site names no key to trust" in page


def test_a_table_is_for_people(tmp_path) -> None:
    signed = {"org.sifmark.signed": "true", "org.sifmark.stand-in": "false"}
    (row,) = catalog_rows(catalog_document(Listing({FIRST: image_of(tmp_path, **signed)})))
    cells = dict(zip(COLUMNS, row, strict=True))
    assert cells["recipe"] == FIRST and cells["reference"] == f"registry.example/x/{FIRST}:1"
    assert (cells["size"], cells["signed"], cells["stand_in"], cells["title"]) == ("1 B", "yes", "no", "")


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_a_registry_does_not_show_holds_nothing_up(
    tmp_path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    """Public registries answer 401 or 403 for what they do not have, to whoever is not logged in."""
    document = catalog_document(Listing({FIRST: image_of(tmp_path)}, status))
    assert [entry["recipe"] for entry in document["images"]] == [FIRST]
    reason = "not there" if status == 404 else "not there, or not for this login"
    assert f"{reason}: {', '.join(OTHERS)}" in capsys.readouterr().err
    with pytest.raises(SifmarkError, match="answers" if status != 404 else "nothing of"):
        catalog_document(Listing({}, status))


def test_a_registry_that_fails_is_no_empty_one(tmp_path) -> None:
    with pytest.raises(RegistryError):
        catalog_document(Listing({FIRST: image_of(tmp_path)}, 500))


def test_a_folder_is_written_as_a_document_and_a_page(
    site: Settings, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.sif"
    file.write_bytes(b"sif")
    open_store(str(tmp_path / "store"), "1", site).push((FIRST,), publish(file, sha256_file(file), 3, {}), file)
    catalog(site, str(tmp_path / "store"), "1", str(tmp_path / "site"))
    written = [tmp_path / "site" / name for name in ("catalog.json", "index.html")]
    assert capsys.readouterr().out.splitlines() == list(map(str, written))
    document = json.loads((tmp_path / "site" / "catalog.json").read_text())
    assert [entry["recipe"] for entry in document["images"]] == [FIRST]
    page = (tmp_path / "site" / "index.html").read_text()
    assert f"sifmark registry.pull {FIRST} --registry {tmp_path / 'store'}<" in page
    assert "apptainer pull" not in page, "Apptainer cannot pull from a folder"
