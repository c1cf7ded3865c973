"""A fetch from a stand-in of nvcr.io, made from public logs of the real one, which no test asks.

What `/v2/` answers is in google/go-containerregistry#728, the challenge without a service in sapcc/keppel#731, the
other token server after a token has expired in NVIDIA/nvidia-container-toolkit#1945.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from unit.registry_double import Answering, running

from sifmark.core import paths
from sifmark.core.environment import platform_name
from sifmark.core.files import sha256_bytes
from sifmark.oci.images import compressed_size, fetch_image, ping
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import MANIFEST_MEDIA

REPOSITORY = "nvidia/pytorch"
LAYERS = [bytes([number]) + os.urandom(400_000) for number in range(3)]
CONFIG = b"{}"


class Nvcr(ThreadingHTTPServer):
    """The stand-in. A token is good for `uses` requests; what holds the blobs ends a connection after `most` bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Registry)
        self.storage = Storage()
        self.uses, self.left, self.tokens = 2, 0, 0
        self.asked: list[dict[str, list[str]]] = []  # of the token server
        parts = [{"digest": sha256_bytes(part), "size": len(part)} for part in (CONFIG, *LAYERS)]
        document = {"schemaVersion": 2, "mediaType": MANIFEST_MEDIA, "config": parts[0], "layers": parts[1:]}
        self.manifest = json.dumps(document).encode()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Storage(ThreadingHTTPServer):
    """Another host, to which the registry sends whoever asks for a blob."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Blob)
        self.most, self.hangs = 2**30, False
        self.logins: list[str | None] = []
        self.ranges: list[int] = []  # where the answers began
        self.sent = 0  # bytes


class _Handler(Answering):
    protocol_version = "HTTP/1.1"


class _Registry(_Handler):
    server: Nvcr

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        nvcr, address = self.server, urlsplit(self.path)
        if address.path == "/proxy_auth":
            nvcr.asked.append(parse_qs(address.query))
            nvcr.tokens, nvcr.left = nvcr.tokens + 1, nvcr.uses
            self.answer(200, json.dumps({"token": f"token {nvcr.tokens}"}).encode())
        elif address.path == "/authn/token":
            self.answer(401, b"{}")
        elif "Authorization" not in self.headers:
            scope = "" if address.path == "/v2/" else f',scope="repository:{REPOSITORY}:pull"'
            challenge = f'Bearer realm="http://{nvcr.host}/proxy_auth"{scope}'
            self.answer(401, b"<html>401 Authorization Required</html>", Www_Authenticate=challenge)
        elif self.headers["Authorization"] != f"Bearer token {nvcr.tokens}" or not nvcr.left:
            challenge = f'Bearer realm="http://{nvcr.host}/authn/token",service="registry",error="invalid_token"'
            self.answer(401, Www_Authenticate=challenge)
        else:
            nvcr.left -= 1
            self.give(address.path)

    def give(self, path: str) -> None:
        digest = path.rpartition("/")[2]
        if "/manifests/" in path:
            self.answer(200, self.server.manifest, Content_Type=MANIFEST_MEDIA)
        else:
            self.answer(307, Location=f"http://localhost:{self.server.storage.server_address[1]}/{digest}")


class _Blob(_Handler):
    server: Storage
    blobs: ClassVar = {sha256_bytes(part): part for part in (CONFIG, *LAYERS)}

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        storage, blob = self.server, self.blobs[self.path[1:]]
        storage.logins.append(self.headers.get("Authorization"))
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        storage.ranges.append(start)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(blob) - start))
        self.end_headers()
        part = blob[start : start + storage.most]
        self.wfile.write(part)
        storage.sent += len(part)
        if start + len(part) < len(blob):
            while storage.hangs:
                time.sleep(0.01)
            self.close_connection = True


@pytest.fixture
def nvcr(no_logins: Path) -> Iterator[Nvcr]:
    with Nvcr() as server, server.storage, running(server, server.storage):
        yield server
        server.storage.hangs = False


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sifmark.oci.client.time.sleep", lambda _seconds: None)


def fetch(nvcr: Nvcr, folder: Path) -> Layout:
    """Fetch the image, and check every byte of it."""
    layout = Layout(folder)
    digest = sha256_bytes(nvcr.manifest)
    fetch_image(f"{nvcr.host}/{REPOSITORY}", digest, platform_name(), layout, lambda _line: None)
    assert all(layout.read(sha256_bytes(part)) == part for part in (CONFIG, *LAYERS))
    return layout


def test_a_challenge_without_the_word_registry_is_an_answer(nvcr: Nvcr) -> None:
    assert ping(nvcr.host) is None
    size = compressed_size(f"{nvcr.host}/{REPOSITORY}", sha256_bytes(nvcr.manifest), platform_name())
    assert size == sum(map(len, LAYERS))


def test_tokens_that_expire_are_renewed_where_the_first_one_came_from(nvcr: Nvcr, tmp_path: Path) -> None:
    """Also in the middle of a blob, which goes on where it broke off."""
    nvcr.storage.most = 150_000
    fetch(nvcr, tmp_path)
    assert nvcr.tokens > 3 and nvcr.asked == [{"scope": [f"repository:{REPOSITORY}:pull"]}] * nvcr.tokens
    assert nvcr.storage.ranges == [0, *[0, 150_000, 300_000] * 3]
    assert set(nvcr.storage.logins) == {None}, "the registry's token went to another host"


def test_a_killed_fetch_is_continued_by_the_next_process(nvcr: Nvcr, tmp_path: Path) -> None:
    nvcr.storage.most, nvcr.storage.hangs = 200_000, True
    code = (
        "import sys; from pathlib import Path; from sifmark.oci.images import fetch_image; "
        "from sifmark.oci.layout import Layout; "
        "fetch_image(*sys.argv[1:4], Layout(Path(sys.argv[4])), lambda _line: None)"
    )
    words = [f"{nvcr.host}/{REPOSITORY}", sha256_bytes(nvcr.manifest), platform_name(), str(tmp_path)]
    process = subprocess.Popen([sys.executable, "-c", code, *words], cwd=paths.ROOT)
    while not (left := partial(tmp_path)) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    left = partial(tmp_path)
    assert 0 < left <= 200_000
    nvcr.storage.most, nvcr.storage.hangs, nvcr.storage.sent = 2**30, False, 0
    fetch(nvcr, tmp_path)
    assert nvcr.storage.ranges == [0, 0, left, 0, 0]
    assert nvcr.storage.sent == sum(map(len, LAYERS)) - left, "the configuration was there"
    assert partial(tmp_path) == 0


def test_a_part_that_was_damaged_is_fetched_again(nvcr: Nvcr, tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(ZeroDivisionError), layout.partial(sha256_bytes(LAYERS[1])) as part:
        assert part is not None
        part.write_bytes(bytes(1000))
        raise ZeroDivisionError
    fetch(nvcr, tmp_path)
    assert nvcr.storage.ranges == [0, 0, 1000, 0, 0]


def partial(folder: Path) -> int:
    """The bytes that an unfinished fetch has left of the first layer."""
    path = folder / "blobs" / "sha256" / f".{sha256_bytes(LAYERS[0]).removeprefix('sha256:')}.partial"
    return path.stat().st_size if path.exists() else 0
