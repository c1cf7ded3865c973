"""Files of anybody, mutated: reading one ends in what it holds or in an error of ours, whatever it holds.

The gate tries some mutations of each kind. A long run: SIFMARK_FUZZ=20000 python -m pytest tests/unit/test_fuzz.py
"""

import json
import os
from collections.abc import Callable

import documents
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties import examples
from unit.engines.test_sif import sif_bytes

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.files import sha256_bytes
from sifmark.core.settings import load_settings
from sifmark.engines.apptainer.sif import fingerprints, read_sif
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import MANIFEST_MEDIA, read_index, read_manifest
from sifmark.recipes.lockfile import read_lock
from sifmark.recipes.recipe import load_recipe, read_recipe
from sifmark.recipes.render import definition, dockerfile
from sifmark.results.envelope import signer_of
from sifmark.results.load import load_text

EXAMPLES = int(os.environ.get("SIFMARK_FUZZ", "60"))
# What parsers stumble over: ends of lines, nesting, other encodings, large numbers, ends of texts.
PIECES = [
    *(b"", b"\x00", b"\xff", b"\n", b"\r", b"\xe2\x80\xa8", b"\xc2\x85", b"\x1b[2J", b'"', b"'", b"\\", b"\\u0000"),
    *(b"{" * 300, b"[" * 3000, b"null", b"true", b"-1", b"0.5", b"1e999", b"NaN", b"9" * 400, b"\xff" * 8),
    *(b"%post\n", b"\n%post\n  id\n", b"${IFS}", b"{{ x }}", b"../../", b"--index-url==1", b"\x7f\xff\xff\xff"),
]
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 40), st.sampled_from(PIECES) | st.binary(max_size=12)),
    min_size=1,
    max_size=5,
)


def mutated(content: bytes) -> st.SearchStrategy[bytes]:
    """The content with pieces of it replaced by others."""

    def apply(edits: list[tuple[float, int, bytes]]) -> bytes:
        text = content
        for place, length, piece in edits:
            start = int(place * len(text))
            text = text[:start] + piece + text[start + length :]
        return text

    return EDITS.map(apply)


def refuses(action: Callable[[], object], *errors: type[Exception]) -> None:
    """Do something that may fail only as a user would expect."""
    try:
        action()
    except SifmarkError as error:
        assert error.code and error.cause
    except errors:
        pass


fuzz = settings(max_examples=examples(EXAMPLES), suppress_health_check=list(HealthCheck))
RESULTS = [json.dumps(documents.from_image(name)).encode() for name in ("training", "inference", "out_of_memory")]


@fuzz
@given(st.sampled_from(RESULTS).flatmap(mutated))
def test_results(text: bytes) -> None:
    document, problems = load_text(text)
    assert isinstance(document, dict) and all(isinstance(problem, str) for problem in problems)
    assert problems or document["schema_version"] in ("1.0", "1.1", "1.2")


@fuzz
@given(content=mutated(sif_bytes({"labels": {"org.sifmark.recipe": "cpu"}}, b"hsqs" + bytes(200))))
def test_sif_files(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.sif"
    path.write_bytes(content)
    refuses(lambda: read_sif(path).labels())
    refuses(lambda: fingerprints(path))


MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA,
        "config": {"mediaType": "a/b", "digest": sha256_bytes(b"{}"), "size": 2},
        "layers": [{"mediaType": "c/d", "digest": sha256_bytes(b"x"), "size": 1, "annotations": {"a": "b"}}],
        "annotations": {"org.sifmark.recipe": "cpu"},
    }
).encode()
INDEX = json.dumps(
    {
        "schemaVersion": 2,
        "manifests": [
            {
                "mediaType": MANIFEST_MEDIA,
                "digest": sha256_bytes(MANIFEST),
                "size": len(MANIFEST),
                "annotations": {"org.opencontainers.image.ref.name": "cpu:0.2.0"},
            }
        ],
    }
).encode()


@fuzz
@given(index=mutated(INDEX), manifest=mutated(MANIFEST))
def test_folders_of_images(tmp_path_factory: pytest.TempPathFactory, index: bytes, manifest: bytes) -> None:
    refuses(lambda: read_index(index), ValueError)
    refuses(lambda: read_manifest(manifest), ValueError)
    layout = Layout(tmp_path_factory.getbasetemp() / "layout")
    blob = layout.blob(sha256_bytes(manifest))
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(manifest)
    layout.index_file.write_bytes(index)
    refuses(lambda: layout.read(sha256_bytes(MANIFEST)))
    assert layout.read(sha256_bytes(manifest)) == manifest
    refuses(layout.names)


RECIPES = [(paths.RECIPES / f"{name}.toml").read_bytes() for name in ("cpu", "cuda", "ipu")]


@fuzz
@given(text=st.sampled_from(RECIPES).flatmap(mutated))
def test_recipes(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    """A recipe that is taken has the sections of ours and no others, and a line for each of its variables."""
    path = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    path.write_bytes(text)
    labels = {"org.opencontainers.image.title": "x"}

    def render() -> None:
        recipe = read_recipe(path)
        text = definition(recipe, f"{recipe.base.image}@sha256:0", labels | {"title": recipe.title}, "/c")
        ours = definition(load_recipe("cpu"), "host/x@sha256:0", labels, "/c")
        assert sections(text) == sections(ours)
        dockerfile(recipe, f"{recipe.base.image}@sha256:0", labels, "/c")

    refuses(render)


def sections(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("%")]


@fuzz
@given(text=mutated((paths.RECIPES / "locks" / "cpu-cp311-x86_64.txt").read_bytes()[:2000]))
def test_locks(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.txt"
    path.write_bytes(text)
    refuses(lambda: read_lock(path))


@fuzz
@given(text=mutated(b'keys = ["site.pub"]\nregistry = "r.example/x"\nmirrors = {"docker.io" = "m.example/hub"}\n'))
def test_settings_files(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "sifmark.toml"
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIFMARK_SETTINGS", str(path))
        refuses(load_settings)


ENVELOPE = json.dumps(
    {
        "payload": "e30=",
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [{"keyid": "a", "sig": "AAAA"}],
    }
).encode()


@fuzz
@given(text=mutated(ENVELOPE))
def test_envelopes(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "x.json").write_text("{}")
    (folder / "x.json.dsse").write_bytes(text)
    with pytest.raises(SifmarkError):
        signer_of(folder / "x.json", ())
