"""What registries say, by a server on the loopback interface that answers as they do, or as they should not."""

import contextlib
import gzip
import hashlib
import json
import os
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from unit import registry_double
from unit.refusals import refused

from sifmark.commands.recipes import pin
from sifmark.core import paths
from sifmark.core.errors import RegistryError, SifmarkError
from sifmark.core.files import sha256_bytes
from sifmark.core.settings import load_settings
from sifmark.oci import client, transport
from sifmark.oci.client import Registry
from sifmark.oci.images import configuration, ping, resolve
from sifmark.oci.manifest import MAX_DOCUMENT_SIZE, read_descriptor, read_manifest
from sifmark.oci.referrers import list_referrers
from sifmark.recipes.recipe import load_recipe, read_recipe, recipe_names

AMD, ARM = "sha256:" + "a" * 64, "sha256:" + "b" * 64
INDEX = {
    "schemaVersion": 2,
    "manifests": [
        {"digest": AMD, "platform": {"os": "linux", "architecture": "amd64"}},
        {"digest": ARM, "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": "sha256:" + "c" * 64, "platform": {"os": "unknown", "architecture": "unknown"}},
    ],
}


class Served(ThreadingHTTPServer):
    """A registry of one repository; `answers` maps paths below /v2/ to status, body and headers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.answers: dict[str, tuple[int, bytes, dict[str, str]]] = {"": (200, b"{}", {})}
        self.token: str | None = None
        self.busy = 0  # so many more questions are answered with 503
        self.logins: list[str | None] = []  # of all questions
        self.asked: list[tuple[str, str, str | None]] = []  # of whoever gives tokens: method, body and authorization

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def put(self, path: str, document: Any, status: int = 200, **headers: str) -> str:
        """Serve a document, and tell its digest."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.answers[path] = (status, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def put_by_digest(self, folder: str, document: Any) -> str:
        """Serve a document below a path, where its digest names it; tell that."""
        digest = self.put(folder, document)
        self.answers[f"{folder}{digest}"] = self.answers.pop(folder)
        return digest


class Answering(BaseHTTPRequestHandler):
    server: Served

    def do_GET(self) -> None:
        path = self.path.removeprefix("/v2/").partition("?")[0]
        self.server.logins.append(self.headers.get("Authorization"))
        if path == "/token":
            form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            self.server.asked.append((self.command, form, self.headers.get("Authorization")))
        status, body, headers = self.server.answers.get(path, (404, b'{"errors": []}', {}))
        token = self.server.token
        if token and path != "/token" and self.headers.get("Authorization") != f"Bearer {token}":
            realm = f'Bearer realm="http://{self.server.host}/token",service="here",scope="pull"'
            headers = {"WWW-Authenticate": realm, "Docker-Distribution-Api-Version": "registry/2"}
            status, body = 401, b"{}"
        if self.server.busy:
            self.server.busy, status = self.server.busy - 1, 503
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


def serving() -> Iterator[Served]:
    with Served() as server, registry_double.running(server):
        yield server


served = pytest.fixture(serving)
storage = pytest.fixture(serving)  # another host, to which the first may send whoever asks


def test_an_index_has_a_digest_for_each_platform(served: Served) -> None:
    digest = served.put("x/y/manifests/1.0", INDEX)
    image = resolve(f"{served.host}/x/y", "1.0")
    assert (image.digest, image.platforms) == (digest, {"x86_64": AMD, "aarch64": ARM})


def test_a_single_manifest_is_of_the_platform_that_its_configuration_names(served: Served) -> None:
    blob = served.put_by_digest("x/blobs/", {"os": "linux", "architecture": "arm64"})
    digest = served.put("x/manifests/1.0", {"schemaVersion": 2, "config": {"digest": blob}})
    assert resolve(f"{served.host}/x", "1.0").platforms == {"aarch64": digest}
    served.answers[f"x/blobs/{blob}"] = (200, b'{"os": "linux", "architecture": "amd64"}', {})
    with refused(RegistryError, "digest-mismatch"):
        resolve(f"{served.host}/x", "1.0")


def test_a_busy_registry_is_asked_again_when_an_image_was_made(served: Served) -> None:
    document = {"created": "2024-02-03T04:05:06Z"}
    blob = served.put_by_digest("x/blobs/", document)
    digest = served.put_by_digest("x/manifests/", {"config": {"digest": blob, "size": 1}, "layers": []})
    served.busy = 1
    assert configuration(f"{served.host}/x", digest, "x86_64") == document


def test_the_token_that_is_for_everybody_is_taken(served: Served) -> None:
    served.put("x/manifests/1.0", INDEX)
    served.put("/token", {"token": "open sesame"})
    served.token = "open sesame"
    assert resolve(f"{served.host}/x", "1.0").platforms["x86_64"] == AMD
    assert served.asked == [("GET", "", None)]
    served.put("/token", {"details": "who are you?"})
    with refused(RegistryError, "registry-refused", "/token"):
        resolve(f"{served.host}/x", "1.0")


@pytest.mark.parametrize(
    ("variable", "file"),
    [
        ("DOCKER_CONFIG", "config.json"),
        ("APPTAINER_CONFIGDIR", "docker-config.json"),
        ("APPTAINER_CONFIGDIR", "config.json"),
    ],
)
def test_a_login_by_an_identity_token_is_used(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, file: str
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("DOCKER_CONFIG", "APPTAINER_CONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / file).write_text(json.dumps({"auths": {served.host: {"identitytoken": "refresh me"}}}))
    served.put("x/manifests/1.0", INDEX)
    served.put("/token", {"access_token": "open sesame"})
    served.token = "open sesame"
    Registry(served.host).document("x/manifests/1.0")
    ((method, form, authorization),) = served.asked
    assert (method, authorization) == ("POST", None)
    assert dict(parse_qsl(form)) == {
        "grant_type": "refresh_token",
        "refresh_token": "refresh me",
        "client_id": "sifmark",
        "service": "here",
        "scope": "pull",
    }


@pytest.mark.parametrize("key", ["credsStore", "credHelpers"])
def test_a_login_that_a_helper_keeps_is_used(
    served: Served, no_logins: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    answer = json.dumps({"ServerURL": served.host, "Username": "me", "Secret": "secret"})
    helper = no_logins / "docker-credential-ours"
    helper.write_text(f"#!/bin/sh\ncat >/dev/null\ncase $1 in list) echo '{{}}' ;; *) echo '{answer}' ;; esac\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{no_logins}:{os.environ['PATH']}")
    kept = {"credsStore": "ours", "credHelpers": {served.host: "ours"}}[key]
    (no_logins / "config.json").write_text(json.dumps({key: kept}))
    served.put("x/manifests/1.0", INDEX)
    served.put("/token", {"token": "open sesame"})
    served.token = "open sesame"
    Registry(served.host).document("x/manifests/1.0")
    assert served.asked == [("GET", "", f"Basic {b64encode(b'me:secret').decode()}")]


def test_a_helper_of_logins_that_is_not_there_is_named(served: Served, no_logins: Path) -> None:
    (no_logins / "config.json").write_text(json.dumps({"credsStore": "nowhere"}))
    served.put("x/manifests/1.0", INDEX)
    served.put("/token", {"details": "who are you?"})
    served.token = "open sesame"
    with pytest.raises(RegistryError) as raised:
        Registry(served.host).document("x/manifests/1.0")
    assert "One did not read: " in raised.value.remedy and "docker-credential-nowhere" in raised.value.remedy


def test_a_login_of_netrc_takes_no_token_s_place(
    served: Served, no_logins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_logins / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(no_logins / "netrc"))
    served.put("x/manifests/1.0", INDEX)
    served.put("/token", {"token": "open sesame"})
    served.token = "open sesame"
    registry = Registry(served.host)
    registry.session.trust_env = True  # as it is where a registry is not on this machine
    registry.document("x/manifests/1.0")
    assert served.asked == [("GET", "", None)]


def test_a_redirect_to_another_host_takes_no_login_along(
    served: Served, storage: Served, no_logins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one of netrc, which may be for any host."""
    (no_logins / "netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(no_logins / "netrc"))
    storage.put("blob", b"bytes")
    served.answers["x/blobs/1"] = (307, b"", {"Location": f"http://localhost:{storage.server_address[1]}/v2/blob"})
    served.put("/token", {"token": "open sesame"})
    served.token = "open sesame"
    registry = Registry(served.host)
    registry.session.trust_env = True
    assert registry.content("x/blobs/1") == b"bytes"
    assert storage.logins == [None]


@pytest.mark.parametrize("kind", ["bearer", "basic"])
def test_the_challenge_of_a_host_behind_a_redirect_is_not_answered(
    served: Served, storage: Served, no_logins: Path, kind: str
) -> None:
    """Else it would get the registry's password, or send it to a token server of its own."""
    auth = b64encode(b"me:secret").decode()
    (no_logins / "config.json").write_text(json.dumps({"auths": {served.host: {"auth": auth}}}))
    storage.put("/token", {"token": "open sesame"})
    realm = {"bearer": f'Bearer realm="http://{storage.host}/token",service="here"', "basic": 'Basic realm="here"'}
    storage.put("blob", b"{}", 401, WWW_Authenticate=realm[kind])
    served.answers["x/blobs/1"] = (307, b"", {"Location": f"http://{storage.host}/v2/blob"})
    with pytest.raises(RegistryError) as error:
        Registry(served.host).content("x/blobs/1")
    assert error.value.status == 401 and error.value.code == "registry-refused"
    assert not storage.asked and storage.logins == [None] and served.logins == [None]


@pytest.mark.parametrize(
    ("realm", "host", "allowed"),
    [
        ("https://evil.example/token", "registry.example", True),  # the registry says who gives its tokens
        ("http://registry.example/token", "registry.example", False),
        ("http://evil.example/token", "127.0.0.1:5000", False),
        ("http://localhost:5001/token", "127.0.0.1:5000", True),
        ("http://127.0.0.1.evil.example/token", "127.0.0.1:5000", False),
        ("http://127.0.0.1@evil.example/token", "127.0.0.1:5000", False),
        ("http://127.0.0.1:80@evil.example/token", "127.0.0.1:5000", False),
        ("http://[127.0.0.1/token", "127.0.0.1:5000", False),
        ("ftp://127.0.0.1/token", "127.0.0.1:5000", False),
        ("", "127.0.0.1:5000", False),
    ],
)
def test_a_login_goes_out_encrypted_or_not_at_all(realm: str, host: str, allowed: bool) -> None:
    assert transport.is_protected(realm, host) == allowed


def test_a_busy_host_behind_a_redirect_is_asked_again(served: Served, storage: Served) -> None:
    storage.put("blob", b"bytes")
    storage.busy = 2
    served.answers["x/blobs/1"] = (307, b"", {"Location": f"http://{storage.host}/v2/blob"})
    assert Registry(served.host, attempts=4).content("x/blobs/1") == b"bytes"


@pytest.mark.parametrize("status", [429, 503])
def test_who_gives_tokens_may_be_busy(served: Served, no_logins: Path, status: int) -> None:
    served.put("x/manifests/1.0", INDEX)
    served.token = "open sesame"
    served.put("/token", b"<html>", status)
    with refused(RegistryError, "registry-refused", "/token", status):
        Registry(served.host).document("x/manifests/1.0")


@pytest.mark.parametrize(
    ("body", "status", "headers", "said"),
    [
        (b"the registry is being mended", 200, {}, "answers with no JSON object"),
        (b"[]", 200, {}, "answers with no JSON object"),
        (b"{}", 200, {}, "is not a manifest of an image"),
        (
            b'{"errors": [{"code": "TOOMANYREQUESTS"}]}',
            429,
            {},
            "answers with 429, it is asked too often: .*TOOMANYREQUESTS",
        ),
        (b'{"schemaVersion": 2}', 200, {"Docker_Content_Digest": AMD}, f"came with digest sha256:.*, not {AMD}"),
    ],
    ids=["text", "list", "nothing", "limit", "digest"],
)
def test_what_is_no_answer_is_never_a_digest(
    served: Served, body: bytes, status: int, headers: dict[str, Any], said: str
) -> None:
    served.put("x/manifests/1.0", body, status, **headers)
    with pytest.raises(RegistryError, match=said):
        resolve(f"{served.host}/x", "1.0")


def test_an_error_in_an_index_is_no_digest(served: Served) -> None:
    wrong = {"digest": "unauthorized", "platform": {"os": "linux", "architecture": "amd64"}}
    served.put("x/manifests/1.0", {"manifests": [wrong, "?", {"platform": None}]})
    assert resolve(f"{served.host}/x", "1.0").platforms == {}


def test_whether_a_registry_answers(served: Served) -> None:
    ask = ping.__wrapped__  # a registry is asked once by each verb
    assert ask(served.host) is None
    served.token = "secret"
    assert ask(served.host) is None, "being asked to log in is an answer"
    served.token = None
    served.put("", b"", 503)
    assert "503" in str(ask(served.host))
    assert "127.0.0.1:1" in str(ask("127.0.0.1:1"))


@pytest.fixture
def clone(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two recipes on a registry that is mirrored by the server."""
    for name in ("cuda", "xpu_ipex"):
        text = (paths.RECIPES / f"{name}.toml").read_text()
        (tmp_path / f"{name}.toml").write_text(text)
    monkeypatch.setattr(paths, "RECIPES", tmp_path)
    monkeypatch.setattr(paths, "GOLDEN", tmp_path / "golden")
    for cached in (recipe_names, load_recipe):
        cached.cache_clear()
    yield tmp_path
    for cached in (recipe_names, load_recipe):
        cached.cache_clear()


def pins(served: Served, update: bool, *names: str) -> None:
    mirrors = {"nvcr.io": served.host, "docker.io": served.host}
    site = replace(load_settings(), mirrors=mirrors)
    pin(names, site, check=False, update=update, form="table")


def digests(clone: Path) -> dict[str, str]:
    return read_recipe(clone / "cuda.toml").base.digests


NVIDIA, INTEL = "nvidia/pytorch/manifests/26.09-py3", "intel/intel-extension-for-pytorch/manifests/2.8.10-xpu"


def test_pins_are_updated_with_comments_kept(served: Served, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served.put(NVIDIA, INDEX)
    served.put(INTEL, INDEX)
    with refused(SifmarkError, "pins-differ", "cuda"):
        pins(served, False, "cuda", "xpu_ipex")
    assert "resolvable xpu_ipex on x86_64" in capsys.readouterr().out
    before, pinned = (clone / "xpu_ipex.toml").read_text(), digests(clone)["x86_64"]
    pins(served, True, "cuda", "xpu_ipex")
    said = capsys.readouterr().out
    assert f'-digest = "{pinned}"' in said and f'+digest = "{AMD}"' in said
    after = (clone / "xpu_ipex.toml").read_text()
    assert read_recipe(clone / "xpu_ipex.toml").base.digests == {"x86_64": AMD}
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert [line.split(" = ")[0] for line in changed] == ["digest", "seen"]
    pins(served, False, "cuda", "xpu_ipex")
    assert sorted(path.name for path in (clone / "golden").iterdir()) == [
        f"{name}.{kind}" for name in ("cuda", "xpu_ipex") for kind in ("Dockerfile", "def")
    ]
    assert f"@{AMD}" in (clone / "golden" / "xpu_ipex.def").read_text(), "the rendered texts follow"


def test_nothing_is_written_where_one_cannot_be_resolved(served: Served, clone: Path) -> None:
    served.put(NVIDIA, INDEX)
    before = {path.name: path.read_text() for path in clone.iterdir()}
    with refused(SifmarkError, "base-unresolved", "xpu_ipex"):
        pins(served, True, "cuda", "xpu_ipex")
    assert {path.name: path.read_text() for path in clone.iterdir()} == before


def test_the_digest_of_all_platforms_is_one_too(
    served: Served, clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = served.put(NVIDIA, INDEX)
    path = clone / "cuda.toml"
    pinned = digests(clone)
    path.write_text(path.read_text().replace(pinned["x86_64"], digest).replace(pinned["aarch64"], ARM))
    pins(served, False, "cuda")
    assert capsys.readouterr().out.count("as pinned") == 2


class DrippingServer(ThreadingHTTPServer):
    """Answers until they are given up, or for ten seconds."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.host, self.given_up = f"127.0.0.1:{self.server_address[1]}", threading.Event()

    def drip(self, sink: BufferedIOBase, data: bytes) -> None:
        with contextlib.suppress(OSError):
            for _ in range(200):
                sink.write(data)
                if self.given_up.wait(0.05):
                    return

    def server_close(self) -> None:
        self.given_up.set()
        super().server_close()


class Dripping(BaseHTTPRequestHandler):
    """Some bytes now and then, 2 KB a second, of many that were announced."""

    server: DrippingServer

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.server.drip(self.wfile, b"x" * 100)

    def log_message(self, *_words: object) -> None:
        pass


def test_a_blob_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client, "FOR_SECONDS", 0.3)
    with DrippingServer(Dripping) as server, registry_double.running(server):
        registry = client.Registry(server.host, attempts=2)
        with refused(RegistryError, "registry-unreachable", " 2 times", "16384 bytes"):
            registry.download("x/blobs/y", AMD, 1_000_000, tmp_path / "blob")
        monkeypatch.setattr(client, "LONGEST", 0.3)
        with refused(RegistryError, "registry-unreachable"):
            registry.content("x/manifests/y")


@pytest.mark.parametrize("status", [200, 500])
def test_a_document_without_end_is_given_up(served: Served, status: int) -> None:
    served.put("x/manifests/1.0", b"x" * (MAX_DOCUMENT_SIZE + 1), status)
    with refused(RegistryError, "registry-unreachable", "4 MiB"):
        resolve(f"{served.host}/x", "1.0")


def test_a_blob_of_another_digest_is_refused(served: Served, tmp_path: Path) -> None:
    served.put("x/blobs/y", b"other bytes")
    with refused(RegistryError, "digest-mismatch"):
        Registry(served.host).download("x/blobs/y", AMD, 11, tmp_path / "blob")


def test_a_blob_of_more_bytes_than_announced_stops_at_the_first(served: Served, tmp_path: Path) -> None:
    digest = served.put("x/blobs/y", b"x" * 3_000_000)
    registry = client.Registry(served.host)
    with refused(RegistryError, "digest-mismatch", "1000000 bytes"):
        registry.download("x/blobs/y", digest, 1_000_000, tmp_path / "blob")
    assert (tmp_path / "blob").stat().st_size <= 1_000_000
    registry.download("x/blobs/y", digest, 3_000_000, tmp_path / "blob")


def test_a_packed_document_reads(served: Served) -> None:
    served.put("x/manifests/1.0", gzip.compress(json.dumps(INDEX).encode()), Content_Encoding="gzip")
    assert resolve(f"{served.host}/x", "1.0").platforms["x86_64"] == AMD


def test_nobody_makes_us_wait_for_hours(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    served.put("x/manifests/1.0", {}, 429, Retry_After="86400")
    with refused(RegistryError, "registry-refused", "429"):
        client.Registry(served.host, attempts=3).content("x/manifests/1.0")
    assert slept == [transport.LONGEST_PAUSE] * 2


@pytest.mark.parametrize("header", ["soon", "Mon, 99 Abc 99999 00:00:00 GMT", "9" * 5000])
def test_a_pause_that_does_not_read_is_our_own(served: Served, monkeypatch: pytest.MonkeyPatch, header: str) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    served.put("x/manifests/1.0", {}, 503, Retry_After=header)
    with refused(RegistryError, "registry-refused", "503"):
        client.Registry(served.host, attempts=3).content("x/manifests/1.0")
    assert slept == [0.5, 1.0]


def test_a_connection_that_is_refused_is_tried_as_often_as_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for call in ("content", "upload", "put_manifest"):
        registry = client.Registry("127.0.0.1:1", attempts=3)
        words = {"content": ("x",), "upload": ("x", AMD, b""), "put_manifest": ("x", "1", b"", "y")}[call]
        with refused(RegistryError, "registry-unreachable", "127.0.0.1:1: ") as raised:
            getattr(registry, call)(*words)
        assert type(raised.value) is RegistryError
        assert slept == [0.5, 1.0], call
        slept.clear()


def test_a_token_server_that_does_not_answer_is_named(served: Served, no_logins: Path) -> None:
    challenge = {"WWW-Authenticate": 'Bearer realm="http://127.0.0.1:1/token"'}
    served.answers["x/manifests/1.0"] = (401, b"{}", challenge)
    with refused(RegistryError, "registry-unreachable", "http://127.0.0.1:1/token"):
        Registry(served.host).document("x/manifests/1.0")


def test_an_upload_goes_to_no_other_host(served: Served) -> None:
    served.put("x/blobs/uploads/", {}, 202, Location="https://elsewhere.example/upload")
    with refused(RegistryError, "registry-answer-invalid", "elsewhere.example"):
        Registry(served.host).upload("x", AMD, b"{}")


def test_an_upload_reports_the_bytes_that_were_sent(tmp_path: Path) -> None:
    file, reported = tmp_path / "x.sif", list[int]()
    file.write_bytes(bytes(200_000))
    with registry_double.serving(api=True) as server:
        digest = sha256_bytes(file.read_bytes())
        assert Registry(server.host).upload("x", digest, file, report=reported.append)
        assert server.blobs[digest] == file.read_bytes()
        assert not Registry(server.host).upload("x", digest, file, report=reported.append), "it is there"
    assert reported == sorted(reported) and reported[-1] == 200_000 and len(reported) > 2


# Registries that lie


@pytest.mark.parametrize("status", [302, 307])
def test_a_login_follows_no_redirect_of_who_gives_tokens(
    served: Served, storage: Served, no_logins: Path, status: int
) -> None:
    """A form is sent again to wherever a redirect of status 307 leads."""
    (no_logins / "config.json").write_text(json.dumps({"auths": {served.host: {"identitytoken": "refresh me"}}}))
    storage.put("/token", {"token": "open sesame"})
    served.put("/token", b"", status, Location=f"http://{storage.host}/token")
    served.token = "open sesame"
    with refused(RegistryError, "registry-answer-invalid", "no token from"):
        Registry(served.host).document("x/manifests/1.0")
    assert not storage.asked and len(served.asked) == 1


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data", "http://127.0.0.1:80@evil.example/x", "file:///etc/passwd"]
)
def test_a_redirect_leads_to_nothing_that_others_can_read(served: Served, target: str) -> None:
    served.put("x/manifests/1.0", {}, 307, Location=target)
    with refused(RegistryError, "registry-unreachable", "without encryption"):
        Registry(served.host).document("x/manifests/1.0")


CHALLENGES = {"long": "Bearer " + "a" * 65_000, "address": 'Bearer realm="https://[::1/token"'}


@pytest.mark.parametrize("challenge", CHALLENGES.values(), ids=CHALLENGES)
def test_a_challenge_that_does_not_read_is_refused_at_once(served: Served, challenge: str) -> None:
    served.put("x/manifests/1.0", {}, 401, WWW_Authenticate=challenge)
    with refused(RegistryError, "registry-refused", "asks for a password"):
        Registry(served.host).document("x/manifests/1.0")


def test_the_next_page_is_at_no_address(served: Served) -> None:
    served.put(f"x/referrers/{AMD}", {"manifests": []}, Link='<http://[::1>; rel="next"')
    with refused(RegistryError, "registry-answer-invalid", "no address"):
        list_referrers(Registry(served.host), "x", AMD)


class DrippingAnywhere(BaseHTTPRequestHandler):
    """Writes byte by byte what an answer may begin with: a status, a header, an interim answer, a chunk's extension."""

    server: DrippingServer

    def do_GET(self) -> None:
        head, drip = {
            "status": (b"HTTP/1.1 ", b"2"),
            "header": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
            "interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
            "chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
        }[self.path.rpartition("/")[2]]
        self.wfile.write(head)
        self.server.drip(self.wfile, drip)

    def log_message(self, *_words: object) -> None:
        pass


@pytest.mark.parametrize("where", ["status", "header", "interim", "chunk"])
def test_an_answer_that_drips_anywhere_is_given_up(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(client, "LONGEST", 0.3)
    server = DrippingServer(DrippingAnywhere)
    with server, registry_double.running(server), refused(RegistryError, "registry-unreachable", "in 0 s"):
        Registry(server.host).document(where)


DESCRIPTOR = {"digest": AMD, "size": 1}
NESTED = json.loads("[" * 900 + "]" * 900)


@pytest.mark.parametrize(
    "changed",
    [
        {"size": 10**400},
        {"size": 1 << 63},
        {"size": -1},
        {"size": True},
        {"size": 1.0},
        {"digest": NESTED},
        {"digest": f"{AMD}\n"},
        {"mediaType": NESTED},
        {"artifactType": 1},
        {"annotations": {"a": NESTED}},
        {"annotations": {"a": "\ud800"}},
        {"annotations": {"\ud800": "a"}},
        {"annotations": NESTED},
    ],
    ids=lambda changed: str(next(iter(changed))),
)
def test_a_descriptor_is_what_the_specification_says_or_none(changed: dict[str, Any]) -> None:
    assert read_descriptor(DESCRIPTOR).size == 1
    with pytest.raises(ValueError):
        read_descriptor({**DESCRIPTOR, **changed})
    with pytest.raises(ValueError):
        read_manifest(json.dumps({"config": {**DESCRIPTOR, **changed}, "layers": []}).encode())
