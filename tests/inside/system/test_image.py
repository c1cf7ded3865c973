"""Which bytes of an image ran: told by whoever started it, or read from the file."""

from __future__ import annotations

import hashlib
import json

import pytest
from program import FILE, IMAGE

from entrypoints.system import image

KEY = IMAGE["build_key"]
RECORD = {"build_key": KEY, "identity": FILE["identity"], "digest": FILE["digest"], "signer": "site.pub"}


def file_of(stop=lambda: None, **environ):
    return image.file_of(IMAGE, environ, stop)


@pytest.fixture()
def sif(tmp_path):
    """A file with the magic of a SIF, larger than what is read at once."""
    path = tmp_path / "resnet50-cpu.sif"
    path.write_bytes(b" " * 32 + b"SIF_MAGIC\0" + b"x" * (3 << 20))
    return path


def test_what_inv_run_tells_is_taken():
    assert file_of(SIFMARK_IMAGE=json.dumps(RECORD)) == FILE


def test_without_a_signature_it_says_so():
    file = file_of(SIFMARK_IMAGE=json.dumps({**RECORD, "signer": None}))
    assert file["signer"] is None and "no signature" in file["reason"]
    assert file["digest"] == FILE["digest"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"build_key": "sha256:" + "9" * 64}, "describes another image"),
        ({"digest": "sha256:short"}, "does not read"),
        ({"identity": 3}, "does not read"),
        ({"signer": ["a"]}, "does not read"),
    ],
)
def test_what_is_told_of_another_image_or_in_another_form_is_not(changes, reason):
    file = file_of(SIFMARK_IMAGE=json.dumps({**RECORD, **changes}))
    assert file["digest"] is None and file["seen_by"] is None and reason in file["reason"]


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "\udc80"])
def test_what_is_no_object_is_not_taken(text):
    assert file_of(SIFMARK_IMAGE=text)["digest"] is None


@pytest.mark.parametrize("variable", ["APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"])
def test_the_file_is_read_where_it_is_to_be_seen(sif, variable):
    file = file_of(**{variable: str(sif)})
    assert file["digest"] == "sha256:" + hashlib.sha256(sif.read_bytes()).hexdigest()
    assert file["seen_by"] == "entrypoint" and file["identity"] is None and file["reason"]


def test_a_series_reads_it_once(sif):
    file = file_of(APPTAINER_CONTAINER=str(sif))
    sif.unlink()
    assert file_of(APPTAINER_CONTAINER=str(sif)) == file


def test_an_order_to_stop_is_obeyed_within_the_file(sif):
    orders = iter([None, None, "interrupted"])
    file = file_of(lambda: next(orders), APPTAINER_CONTAINER=str(sif))
    assert file["digest"] is None and "interrupted" in file["reason"]


def test_what_is_not_there_or_no_image_is_not_read(tmp_path):
    other = tmp_path / "file"
    other.write_text("no image")
    for place in (other, tmp_path, tmp_path / "nothing"):
        assert "not visible" in file_of(APPTAINER_CONTAINER=str(place))["reason"]
    assert "does not show" in file_of()["reason"]
