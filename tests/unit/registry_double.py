"""A registry on the loopback interface that keeps what is pushed, with the API of referrers or without."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sifmark.core.files import sha256_bytes
from sifmark.oci.manifest import INDEX_MEDIA, MANIFEST_MEDIA
from sifmark.recipes.base import BaseImage

REPOSITORY = "x"  # of the images that are put here by these functions


class RegistryDouble(ThreadingHTTPServer):
    """By the OCI distribution specification; `api` is whether it lists referrers, so many to a page."""

    def __init__(self, api: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api, self.page, self.deletes = api, 2, True
        self.blobs: dict[str, bytes] = {}  # of all repositories
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}  # by repository and digest
        self.tags: dict[tuple[str, str], str] = {}
        self.requests: list[str] = []
        self.next_pages = ""  # where the pages of a list go on, if not here: //HOST
        self.listing: list[dict[str, Any]] | None = (
            None  # referrers of whatever is asked for, in place of the true ones
        )

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def put(self, repository: str, reference: str, content: bytes, media: str) -> str:
        digest = sha256_bytes(content)
        self.manifests[repository, digest] = (media, content)
        if not reference.startswith("sha256:"):
            self.tags[repository, reference] = digest
        return digest

    def referrers(self, repository: str, subject: str) -> list[dict[str, Any]]:
        if self.listing is not None:
            return self.listing
        listed = []
        for (name, digest), (media, content) in self.manifests.items():
            document = json.loads(content)
            if name == repository and (document.get("subject") or {}).get("digest") == subject:
                more = {key: document[key] for key in ("artifactType", "annotations") if key in document}
                listed.append({"mediaType": media, "digest": digest, "size": len(content), **more})
        return listed


def put_image(server: RegistryDouble, configuration: dict[str, Any], layer: bytes) -> str:
    """Let the registry have an image of one layer, and return its digest."""
    config = json.dumps(configuration).encode()
    server.blobs |= {sha256_bytes(content): content for content in (config, layer)}
    parts = {
        "config": {"digest": sha256_bytes(config), "size": len(config)},
        "layers": [{"digest": sha256_bytes(layer), "size": len(layer)}],
    }
    return put_document(server, {"schemaVersion": 2, "mediaType": MANIFEST_MEDIA, **parts})


def put_document(server: RegistryDouble, document: dict[str, Any]) -> str:
    """Let the registry have a manifest or an index, and return its digest."""
    content = json.dumps(document).encode()
    return server.put(REPOSITORY, sha256_bytes(content), content, document["mediaType"])


def base_of(server: RegistryDouble, digest: str) -> BaseImage:
    """Return such an image as the base of a recipe."""
    return BaseImage(f"{server.host}/{REPOSITORY}", "1.0", digest, "3.11", None, stand_in=False, plain_http=True)


@contextmanager
def running(*servers: ThreadingHTTPServer) -> Iterator[None]:
    """Let servers answer while the block runs."""
    threads = [threading.Thread(target=each.serve_forever, args=(0.01,), daemon=True) for each in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()


@contextmanager
def serving(api: bool) -> Iterator[RegistryDouble]:
    with RegistryDouble(api) as server, running(server):
        yield server


class Answering(BaseHTTPRequestHandler):
    """A handler that answers in one call, and keeps quiet."""

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_words: object) -> None:
        pass


class _Handler(Answering):
    server: RegistryDouble

    def handle_request(self) -> None:
        address = urlsplit(self.path)
        path, query = address.path.removeprefix("/v2/"), parse_qs(address.query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(f"{self.command} {path}")
        for kind in ("blobs", "manifests", "referrers"):
            repository, separator, rest = path.partition(f"/{kind}/")
            if separator:
                getattr(self, kind)(repository, rest, query, body)
                return
        self.answer(404)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_request  # noqa: N815

    def blobs(self, repository: str, name: str, query: dict[str, list[str]], body: bytes) -> None:
        blobs = self.server.blobs
        if self.command == "POST":
            linked = query.get("mount", [""])[0] in blobs
            self.answer(201 if linked else 202, Location=f"/v2/{repository}/blobs/uploads/1")
        elif self.command == "PUT":
            whole = sha256_bytes(body) == query["digest"][0]
            blobs |= {sha256_bytes(body): body} if whole else {}
            self.answer(201 if whole else 400)
        else:
            self.answer(200 if name in blobs else 404, blobs.get(name, b""))

    def manifests(self, repository: str, reference: str, _query: object, body: bytes) -> None:
        digest = self.server.tags.get((repository, reference), reference)
        if self.command == "PUT":
            self.put(repository, reference, body)
        elif (repository, digest) not in self.server.manifests:
            self.answer(404)
        elif self.command == "DELETE":
            if self.server.deletes:
                del self.server.manifests[repository, digest]
            self.answer(202 if self.server.deletes else 405)
        else:
            media, content = self.server.manifests[repository, digest]
            self.answer(200, content, Content_Type=media)

    def put(self, repository: str, reference: str, body: bytes) -> None:
        media, document = self.headers["Content-Type"], json.loads(body)
        blobs = [document["config"], *document["layers"]] if "config" in document else []
        children = document.get("manifests", [])
        complete = all(blob["digest"] in self.server.blobs for blob in blobs) and all(
            (repository, child["digest"]) in self.server.manifests for child in children
        )
        if not complete or (reference.startswith("sha256:") and sha256_bytes(body) != reference):
            self.answer(400)
            return
        self.server.put(repository, reference, body, media)
        subject = document.get("subject", {}).get("digest")
        self.answer(201, **({"OCI_Subject": subject} if self.server.api and subject else {}))

    def referrers(self, repository: str, rest: str, query: dict[str, list[str]], _body: bytes) -> None:
        if not self.server.api:
            self.answer(404, b"404 page not found\n")
            return
        listed, begin, size = (
            self.server.referrers(repository, rest),
            int(query.get("last", ["0"])[0]),
            self.server.page,
        )
        link = f'<{self.server.next_pages}/v2/{repository}/referrers/{rest}?last={begin + size}>; rel="next"'
        more = {"Link": link} if begin + size < len(listed) else {}
        index = {"schemaVersion": 2, "mediaType": INDEX_MEDIA, "manifests": listed[begin : begin + size]}
        self.answer(200, json.dumps(index).encode(), Content_Type=INDEX_MEDIA, **more)
