"""Images through a real registry, and through a proxy before it that fails in the ways that registries do."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex
from threading import Lock, Thread
from typing import Any, NamedTuple

import pytest
import requests
from documents import changed
from images.sites import Command, Refused, Site, answer, call, copy_images, make_site
from images.test_trust import flip, make_key
from unit.report.samples import sample

from sifmark import __version__
from sifmark.core import paths
from sifmark.core.files import sha256_bytes
from sifmark.core.keys import key_id
from sifmark.core.schemas import check_document
from sifmark.core.settings import load_settings
from sifmark.engines.apptainer.engine import user_flags
from sifmark.engines.apptainer.sif import fingerprints, read_sif
from sifmark.oci.images import connect, fetch_manifest
from sifmark.oci.manifest import EMPTY, EMPTY_MEDIA, TITLE, descriptor_of, write_manifest
from sifmark.oci.referrers import attach
from sifmark.publish.results import ARTIFACT
from sifmark.publish.stores import IDENTITY, SIGNED, open_store, public_labels, publish
from sifmark.results.envelope import sign_results

RECIPE = "ipu"  # the smallest
IMAGE = f"{RECIPE}.sif"
LOGIN = "Basic dXNlcjpzZWNyZXQ="  # user:secret


class Proxy(ThreadingHTTPServer):
    """Passes on what the real registry says; `fault` may answer in its place, and is told each request first."""

    def __init__(self, real: str) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.real, self.lock = real, Lock()
        self.fault: Callable[[Passing], bool] = lambda _: False
        self.asked: list[tuple[str, str, str]] = []  # method, path, range
        self.failed = 0
        self.session = requests.Session()
        self.session.trust_env = False
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def fail(self, times: int, fault: "Callable[[Passing], None]", only: str = "") -> None:
        """Let a fault answer so many requests whose method and path hold a text."""

        def judge(request: "Passing") -> bool:
            with self.lock:
                if self.failed >= times or only not in f"{request.command} {request.path}":
                    return False
                self.failed += 1
            fault(request)
            return True

        self.fault = judge


class Passing(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def pass_on(self) -> None:
        self.server.asked.append((self.command, self.path, self.headers.get("Range", "")))
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.fault(self):
            return
        self.say(self.real())

    def real(self) -> requests.Response:
        named = ("Accept", "Content-Type", "Range")
        headers = {name: self.headers[name] for name in named if name in self.headers}
        return self.server.session.request(
            self.command,
            f"http://{self.server.real}{self.path}",
            headers={"Accept-Encoding": "identity", **headers},
            data=self.body,
        )

    def say(self, response: requests.Response, content: bytes | None = None, claimed: int | None = None) -> None:
        content = response.content if content is None else content
        self.send_response(response.status_code)
        for name in {"Content-Type", "Docker-Content-Digest", "Content-Range"} & set(response.headers):
            self.send_header(name, response.headers[name])
        if "Location" in response.headers:
            self.send_header("Location", response.headers["Location"].replace(self.server.real, self.server.host))
        size = response.headers.get("Content-Length", "0") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(size if claimed is None else claimed))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def cut(self) -> None:
        """Half of what was asked for, then nothing."""
        response = self.real()
        self.say(response, response.content[: len(response.content) // 2], claimed=len(response.content))
        self.close_connection = True

    def spoil(self) -> None:
        """As many bytes, of which one is another."""
        response = self.real()
        self.say(response, response.content[:-1] + bytes([response.content[-1] ^ 1]))

    def ask_for_login(self) -> None:
        self.refuse(401, WWW_Authenticate='Basic realm="here"')

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = pass_on  # noqa: N815 - the library's names

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    server = Proxy(json.loads(load_settings().stand_in_pins.read_text())["registry"])
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with an image signed by its key."""
    folder = tmp_path_factory.mktemp("made")
    site = make_site(folder)
    site.inv("build", RECIPE)
    site.inv("image.sign", RECIPE, "--key", str(make_key(folder, "site")))
    yield site
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def published(made: Site) -> str:
    """Where it was pushed to: a path in the real registry."""
    prefix = f"{json.loads(load_settings().stand_in_pins.read_text())['registry']}/test-{token_hex(4)}/images"
    made.inv("registry.push", RECIPE, "--registry", prefix)
    return prefix


@pytest.fixture
def fetching(made: Site, tmp_path: Path) -> Site:
    """A site without images that trusts the key of the other."""
    folder = tmp_path / "fetching"
    folder.mkdir()
    (folder / "sifmark.toml").write_text(f'keys = ["{made.folder / "site.pub"}"]\n')
    return make_site(folder).using(HOME=str(folder))


def through(proxy: Proxy, prefix: str) -> str:
    """The same path, by way of the proxy."""
    return f"{proxy.host}/{prefix.partition('/')[2]}"


def untouched(site: Site) -> bool:
    return not site.dist.exists() or not [path for path in site.dist.rglob("*.sif*") if path.suffix != ".lock"]


LINKS = ("result", "image", "signature", "provenance", "packages", "base", "recipe", "workload", "commit")
UNSIGNED = dict.fromkeys(LINKS, "verified") | {"result": "valid"}  # a result that nobody signed


def traced(inv: Command, path: str, *words: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The links of a result, and how each stands, by whoever runs the verb."""
    (answer,) = json.loads(inv("results.trace", path, "--json", *words).stdout)
    return answer["links"], {link["name"]: link["state"] for link in answer["links"]}


def test_from_build_to_result_through_a_registry(made: Site, published: str, fetching: Site) -> None:
    """Build, sign and push on one site; pull, verify, run and validate on another, which has nothing but the key."""
    record = json.loads(fetching.inv("registry.pull", f"lstm-{RECIPE}", "--registry", published, "--json").stdout)
    signer = key_id(made.folder / "site.pub")
    assert record["signed_by"] == signer
    assert record["identity"] == read_sif(made.dist / IMAGE).identity()
    assert (fetching.dist / IMAGE).read_bytes() == (made.dist / IMAGE).read_bytes()
    verified = json.loads(fetching.inv("verify", f"lstm-{RECIPE}", "--stages", "trust,structure", "--json").stdout)
    ((trust, structure),) = verified.values()
    assert (trust["outcome"], structure["outcome"]) == ("passed", "passed")
    assert f"signature: by {signer}" in trust["reasons"]
    done = fetching.inv("run", f"lstm-{RECIPE}", "--require-signature", "--", "--smoke", check=False)
    result = answer(done)
    assert result["status"]["state"] == "no_device" and result["provenance"]["image"]["recipe"] == RECIPE
    (fetching.folder / "result.json").write_text(done.stdout)
    fetching.inv("results.validate", "result.json")
    # The stand-in's pins, which this site lacks, prove base and recipe where it was made.
    image = ("--image", str(fetching.dist / IMAGE), "--key", str(made.folder / "site.pub"))
    ((*_, commit), standings) = traced(made.inv, str(fetching.folder / "result.json"), *image)
    assert standings == UNSIGNED | {"commit": commit["state"]}
    assert commit["state"] == (
        "unverified" if "-dirty" in str(result["provenance"]["image"]["revision"]) else "verified"
    )
    assert "pulled" in json.loads((fetching.dist / f"{RECIPE}.sif.json").read_text())
    shutil.copy(made.folder / "site.pub", fetching.folder / "theirs.pub")  # each site names keys in its own way
    links, standings = traced(
        made.inv, str(fetching.folder / "result.json"), *image[:3], str(fetching.folder / "theirs.pub")
    )
    assert standings["signature"] == "verified"
    assert any(link["detail"].endswith(f", which the result calls {signer}") for link in links)


def test_an_ordinary_user_pulls_verifies_runs_and_traces(
    made: Site, published: str, home: Path, as_user: Command
) -> None:
    """With a home of his own, in which nothing is but the key; the interpreter may be the system's."""
    (home / "site.pub").write_bytes((made.folder / "site.pub").read_bytes())
    python = readable_python(as_user)
    settings = home / "sifmark.toml"
    settings.write_text(f'keys = ["{home / "site.pub"}"]\nregistry = "{published}"\nrequire_signature = true\n')
    environment = {"SIFMARK_DIST": str(home / "dist"), "SIFMARK_CACHE": str(home / "cache"), **python.environment}

    def inv(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        argv = [python.path, "-m", "invoke", "--search-root", str(paths.ROOT), *words]
        return as_user(*argv, check=check, environment=environment)

    assert json.loads(inv("registry.pull", f"lstm-{RECIPE}", "--json").stdout)["signed_by"] == key_id(home / "site.pub")
    assert (home / "dist" / IMAGE).stat().st_uid == home.stat().st_uid
    inv("verify", f"lstm-{RECIPE}", "--stages", "trust,structure")
    done = inv("run", f"lstm-{RECIPE}", "--", "--smoke", check=False)
    assert answer(done)["provenance"]["image"]["file"]["signer"] == key_id(home / "site.pub")
    (home / "result.json").write_text(done.stdout)
    inv("results.validate", "result.json")
    _, standings = traced(inv, "result.json")
    # What the stand-in's pins would prove, this user's own cache does not have.
    unverified = dict.fromkeys(("base", "recipe", "workload", "commit"), "unverified")
    assert standings == UNSIGNED | unverified


class Python(NamedTuple):
    """An interpreter that an ordinary user may start, and what it needs to find the packages."""

    path: str
    environment: dict[str, str]


def readable_python(as_user: Command) -> Python:
    """This interpreter, or the system's of the same version with this one's packages."""
    with suppress(PermissionError):
        as_user(sys.executable, "-c", "")
        return Python(sys.executable, {})
    other = f"/usr/bin/python3.{sys.version_info.minor}"
    if not Path(other).exists():
        pytest.skip(f"{sys.executable} is another user's, and there is no {other}")
    packages = sysconfig.get_paths()["purelib"]
    return Python(other, {"PYTHONPATH": f"{paths.ROOT}:{packages}"})


# What someone wrote into a result, and the link at which it shows.
FORGED: dict[str, tuple[str, object, str]] = {
    "result: of no form": ("status.state", "fine", "result"),
    "result: another build key": ("provenance.image.build_key", f"sha256:{'0' * 64}", "image"),
    "result: another base": ("provenance.image.base.digest", f"sha256:{'0' * 64}", "image"),
    "result: another platform": ("provenance.image.platform", "aarch64", "result"),
    "result: a vendor's base": ("provenance.image.stand_in", False, "result"),
    "result: another commit": ("provenance.image.revision", "0" * 40, "image"),
    "result: another image": ("provenance.image.file.identity", f"sha256:{'0' * 64}", "image"),
    "result: another signer": ("provenance.image.file.signer", "site.pub (0123456789ab)", "signature"),
    "result: another workload": ("workload.identity", f"sha256:{'0' * 64}", "workload"),
}


def test_a_result_that_was_forged_breaks_at_the_link_that_it_forges(
    made: Site, fetching: Site, published: str, refused: Refused
) -> None:
    fetching.inv("registry.pull", RECIPE, "--registry", published)
    result = answer(fetching.inv("run", f"lstm-{RECIPE}", "--", "--smoke", check=False))
    forged = [changed(result, tuple(path.split(".")), value) for path, value, _ in FORGED.values()]
    (fetching.folder / "all.jsonl").write_text("".join(f"{json.dumps(document)}\n" for document in (result, *forged)))
    image = ("--image", str(fetching.dist / IMAGE), "--key", str(made.folder / "site.pub"))
    done = made.inv("results.trace", str(fetching.folder / "all.jsonl"), *image, "--json", check=False)
    assert done.returncode == 1 and "contradicted: image, result, signature, workload" in done.stderr
    genuine, *traces = json.loads(done.stdout)
    assert "contradicted" not in {link["state"] for link in genuine["links"]}
    for (what, (_, _, name)), trace in zip(FORGED.items(), traces, strict=True):
        (link,) = [link for link in trace["links"] if link["state"] == "contradicted"]
        assert link["name"] == name, what
        refused(what, link["detail"])


def test_a_trace_without_the_image_only_claims(fetching: Site, published: str) -> None:
    fetching.inv("registry.pull", RECIPE, "--registry", published)
    done = fetching.inv("run", f"lstm-{RECIPE}", "--", "--smoke", check=False)
    (fetching.folder / "result.json").write_text(done.stdout)
    hostile = changed(
        json.loads(done.stdout), ("provenance", "image", "recipe"), f"../dist/{RECIPE}"
    )  # no path is followed
    (fetching.folder / "hostile.json").write_text(json.dumps(hostile))
    assert traced(fetching.inv, "hostile.json")[1] == {**dict.fromkeys(LINKS, "unverified"), "result": "valid"}
    nothing = {**dict.fromkeys(("identity", "digest", "signer", "seen_by")), "reason": "nobody looked"}
    unseen = changed(json.loads(done.stdout), ("provenance", "image", "file"), nothing)
    (fetching.folder / "unseen.json").write_text(json.dumps(unseen))
    (_, image, *_), standings = traced(fetching.inv, "unseen.json")
    assert (
        standings["image"] == "unverified" and "nobody looked; the image here has the same build key" in image["detail"]
    )
    # What apptainer run saw before the image was signed: the entrypoint can tell a digest alone.
    before = {**nothing, "digest": f"sha256:{'0' * 64}", "seen_by": "entrypoint"}
    earlier = changed(json.loads(done.stdout), ("provenance", "image", "file"), before)
    (fetching.folder / "earlier.json").write_text(json.dumps(earlier))
    (_, image, *_), standings = traced(fetching.inv, "earlier.json", "--image", str(fetching.dist / IMAGE))
    assert standings["image"] == "unverified" and "which signing changes" in image["detail"]
    (fetching.folder / "sifmark.toml").write_text("")  # nobody vouches for what lies beside that which runs
    standings = traced(fetching.inv, "result.json")[1]
    assert standings["image"] == "verified"
    assert {standings[name] for name in ("signature", "provenance", "packages")} == {"unverified"}
    shutil.rmtree(fetching.dist)
    links, standings = traced(fetching.inv, "result.json")
    assert standings["image"] == "unverified" and "sifmark registry.pull" in links[1]["detail"]
    assert {standings[name] for name in ("signature", "provenance", "packages", "base")} == {"unverified"}


def test_every_name_is_one_manifest_and_apptainer_itself_pulls_it(made: Site, published: str, tmp_path: Path) -> None:
    pushed = json.loads(made.inv("registry.push", RECIPE, "--registry", published, "--json").stdout)
    record = json.loads((made.dist / f"{RECIPE}.sif.json").read_text())
    assert record["pushed"] == f"{published}/{RECIPE}:{__version__}@{pushed['digest']}"
    assert len(pushed["names"]) > 10 and pushed["names"][0] == f"{published}/{RECIPE}:{__version__}"
    host = published.partition("/")[0]
    session = requests.Session()
    session.trust_env = False
    digests = set()
    for name in pushed["names"]:
        repository = name.removeprefix(f"{host}/").rpartition(":")[0]
        media = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
        response = session.get(f"http://{host}/v2/{repository}/manifests/{__version__}", headers=media)
        digests.add(response.headers["Docker-Content-Digest"])
    assert digests == {pushed["digest"]}
    annotations = response.json()["annotations"]
    assert annotations["org.sifmark.identity"] == pushed["identity"] and annotations["org.sifmark.signed"] == "true"
    call(["apptainer", "pull", "--no-https", f"oras://{published}/lstm-{RECIPE}:{__version__}"], cwd=tmp_path)
    pulled = tmp_path / f"lstm-{RECIPE}_{__version__}.sif"
    said = call(["apptainer", "run", *user_flags(), pulled, "--smoke"], check=False)
    assert answer(said)["workload"]["name"] == "lstm"


# What goes wrong on the way, how often, and what is told; None: it is pulled all the same.
FAULTS: dict[str, tuple[Callable[[Passing], None], int, str, str | None]] = {
    "401 without a login": (Passing.ask_for_login, 99, "", "it asks for a password"),
    "404": (lambda request: request.refuse(404), 99, "manifests", "answers with 404, it has no such image"),
    "429 twice": (lambda request: request.refuse(429, Retry_After="0"), 2, "", None),
    "429 always": (lambda request: request.refuse(429, Retry_After="0"), 99, "", "it is asked too often"),
    "500 twice": (lambda request: request.refuse(500), 2, "blobs", None),
    "500 always": (lambda request: request.refuse(500), 99, "blobs", "answers with 500"),
    "cut once": (Passing.cut, 1, "blobs", None),
    "cut always": (Passing.cut, 99, "blobs", "the connection broke 5 times"),
    "another blob": (Passing.spoil, 99, "blobs", "the answer has digest sha256:"),
    "another manifest": (Passing.spoil, 99, "manifests", "came with digest"),
}


# The gate has one of each outcome; what fails always costs its pauses.
QUICK = ("401 without a login", "429 twice", "cut once", "another blob")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.full) for n in FAULTS])
def test_a_registry_that_fails(published: str, fetching: Site, proxy: Proxy, name: str, refused: Refused) -> None:
    fault, times, only, message = FAULTS[name]
    proxy.fail(times, fault, only)
    done = fetching.inv("registry.pull", RECIPE, "--registry", through(proxy, published), check=False)
    assert "Traceback" not in done.stderr
    if message is None:
        assert done.returncode == 0, done.stderr
        assert proxy.failed == times
        assert ("bytes=" in "".join(rest for _, _, rest in proxy.asked)) == (name == "cut once")
        return
    assert done.returncode == 1 and message in done.stderr and "remedy:" in done.stderr
    assert untouched(fetching)
    refused(f"registry: {name}", done.stderr)


def test_a_login_of_docker_is_used_and_never_told(made: Site, published: str, fetching: Site, proxy: Proxy) -> None:
    proxy.fail(99, Passing.ask_for_login)
    strict = proxy.fault
    proxy.fault = lambda request: request.headers.get("Authorization") != LOGIN and strict(request)
    docker = fetching.folder / ".docker"
    docker.mkdir()
    (docker / "config.json").write_text(json.dumps({"auths": {proxy.host: {"auth": LOGIN.split()[1]}}}))
    done = fetching.inv("registry.pull", RECIPE, "--registry", through(proxy, published))
    written = "".join(path.read_text(errors="replace") for path in fetching.dist.rglob("*.json"))
    assert "secret" not in done.stdout + done.stderr + written and LOGIN.split()[1] not in done.stderr + written
    shutil.rmtree(docker)
    own = fetching.folder / ".apptainer" / "docker-config.json"
    own.parent.mkdir(exist_ok=True)
    own.write_text(json.dumps({"auths": {proxy.host: {"auth": LOGIN.split()[1]}}}))
    fetching.inv("registry.pull", RECIPE, "--registry", through(proxy, published))
    own.unlink()
    assert fetching.inv("registry.pull", RECIPE, "--registry", through(proxy, published), check=False).returncode == 1


def test_an_interrupted_push_leaves_no_tag(made: Site, fetching: Site, proxy: Proxy) -> None:
    prefix = f"{proxy.host}/test-{token_hex(4)}/images"

    def hang_up(request: Passing) -> None:
        request.close_connection = True
        request.connection.close()

    proxy.fail(99, hang_up, "PUT ")
    done = made.inv("registry.push", RECIPE, "--registry", prefix, check=False)
    assert done.returncode == 1 and "remedy:" in done.stderr and "Traceback" not in done.stderr
    proxy.fault = lambda _: False
    assert "it has no such image" in fetching.inv("registry.pull", RECIPE, "--registry", prefix, check=False).stderr
    made.inv("registry.push", RECIPE, "--registry", prefix)
    fetching.inv("registry.pull", RECIPE, "--registry", prefix)


def lose(request: Passing) -> None:
    """The last byte came too late: the registry has it all, and nobody hears of it."""
    request.real()
    request.close_connection = True
    request.connection.close()


DISTURBED: dict[str, tuple[Callable[[Passing], None], str]] = {
    "a lost answer": (lose, "PUT "),
    "an unknown upload": (lambda request: request.refuse(404), "PUT "),
    "an unknown blob": (lambda request: request.refuse(400), "manifests"),
}


@pytest.mark.parametrize("name", DISTURBED)
def test_a_push_that_is_disturbed_is_begun_anew(made: Site, proxy: Proxy, name: str) -> None:
    prefix = f"{proxy.host}/test-{token_hex(4)}/images"
    proxy.fail(1, *DISTURBED[name])
    made.inv("registry.push", RECIPE, "--registry", prefix)
    assert proxy.failed == 1
    assert "was there already" in made.inv("registry.push", RECIPE, "--registry", prefix).stderr


def test_two_publishers_at_once(made: Site, fetching: Site, proxy: Proxy, tmp_path: Path) -> None:
    prefix = f"{proxy.host}/test-{token_hex(4)}/images"
    other = made.using(SIFMARK_DIST=str(tmp_path / "dist"))
    copy_images(made.dist, tmp_path / "dist")
    both = [site.start("registry.push", RECIPE, "--registry", prefix) for site in (made, other)]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0][0] == said[1][0]
    fetching.inv("registry.pull", RECIPE, "--registry", prefix)


@pytest.mark.full  # the gate has it without an image: publish/test_publish_sif.py
def test_what_another_key_signed_does_not_take_its_name(published: str, fetching: Site, tmp_path: Path) -> None:
    other = make_key(tmp_path, "other").with_suffix(".pub")
    refused = fetching.inv("registry.pull", RECIPE, "--registry", published, "--key", str(other), check=False)
    assert refused.returncode == 1 and "by none of the keys that this site trusts" in refused.stderr
    assert untouched(fetching)


@pytest.mark.full  # the gate has it without an image: publish/test_publish_sif.py
def test_a_disk_that_is_too_small_is_named_before_anything_is_fetched(published: str, fetching: Site) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    small = fetching.folder / "small"
    small.mkdir()
    call(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", small])
    try:
        done = fetching.inv(
            "registry.pull", RECIPE, "--registry", published, check=False, SIFMARK_DIST=str(small / "dist")
        )
        assert done.returncode == 1 and "has 20 MiB left" in done.stderr
        assert not list(small.rglob("*.sif"))
    finally:
        call(["umount", "--lazy", small])


def test_a_disk_that_fills_while_pulling_leaves_nothing(
    made: Site, published: str, fetching: Site, proxy: Proxy
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    small, size = fetching.folder / "small", (made.dist / f"{RECIPE}.sif").stat().st_size
    small.mkdir()
    call(["mount", "-t", "tmpfs", "-o", f"size={size + (8 << 20)}", "tmpfs", small])

    def fill(request: Passing) -> bool:
        if "/blobs/" in request.path:
            (small / "of another").write_bytes(bytes(size // 2))
        return False

    proxy.fault = fill
    try:
        away = {"SIFMARK_DIST": str(small / "dist")}
        done = fetching.inv("registry.pull", RECIPE, "--registry", through(proxy, published), check=False, **away)
        assert done.returncode == 1, done.stderr
        assert f"error: {small / 'dist'}/" in done.stderr and "sifmark clean" in done.stderr
        assert ": No space left on device, with " in done.stderr
        assert "Traceback" not in done.stderr
        assert [path.name for path in small.rglob("*") if path.is_file() and path.stat().st_size] == ["of another"]
    finally:
        call(["umount", "--lazy", small])


@pytest.mark.full  # the gate has it without an image: publish/test_publish_sif.py
def test_an_image_of_another_recipe_is_refused(made: Site, published: str, fetching: Site, proxy: Proxy) -> None:
    """A registry that serves one image under another's name: each part is what its digest says."""

    def serve_other(request: Passing) -> bool:
        request.path = request.path.replace(f"/cpu/manifests/{__version__}", f"/{RECIPE}/manifests/{__version__}")
        request.path = request.path.replace("/cpu/blobs/", f"/{RECIPE}/blobs/")
        return False

    proxy.fault = serve_other
    done = fetching.inv("registry.pull", "cpu", "--registry", through(proxy, published), check=False)
    assert done.returncode == 1 and f"the image has org.sifmark.recipe {RECIPE}, not cpu" in done.stderr
    assert untouched(fetching)


def test_what_is_no_image_of_the_recipe_is_neither_pushed_nor_taken(
    made: Site, published: str, fetching: Site, tmp_path: Path
) -> None:
    away = {"SIFMARK_DIST": str(tmp_path)}
    shutil.copy(made.dist / f"{RECIPE}.sif", tmp_path / "cpu.sif")
    done = made.inv("registry.push", "cpu", "--registry", published, check=False, **away)
    assert done.returncode == 1 and f"cpu.sif is an image of recipe {RECIPE}" in done.stderr
    damaged = tmp_path / f"{RECIPE}.sif"
    shutil.copy(made.dist / damaged.name, damaged)
    flip(damaged, read_sif(damaged).system.offset + 5000)
    done = made.inv("registry.push", RECIPE, "--registry", published, check=False, **away)
    assert done.returncode == 1 and "its provenance is of another image" in done.stderr
    computed, labels = fingerprints(damaged), read_sif(damaged).labels()
    # As who knows no better announces it.
    annotations = {**public_labels(labels), IDENTITY: computed.identity, SIGNED: "false"}
    elsewhere = f"{published}-damaged"
    open_store(elsewhere, "", load_settings()).push(
        (RECIPE,), publish(damaged, computed.digest, damaged.stat().st_size, annotations), damaged
    )
    done = fetching.inv("registry.pull", RECIPE, "--registry", elsewhere, check=False)
    assert done.returncode == 1 and "the image contradicts itself: its provenance is of another image" in done.stderr
    assert untouched(fetching)


def test_a_folder_takes_images_to_a_site_without_a_network(made: Site, published: str, fetching: Site) -> None:
    folder = fetching.folder / "carried"
    said = fetching.inv("registry.mirror", str(folder), "--name", RECIPE, "--registry", published)
    assert said.stdout.startswith(f"{folder}: {RECIPE}:{__version__}@sha256:")
    assert "was there already" in fetching.inv("registry.mirror", str(folder), "--registry", published).stdout
    record = json.loads(fetching.inv("registry.pull", f"lstm-{RECIPE}", "--registry", str(folder), "--json").stdout)
    assert record["signed_by"] == key_id(made.folder / "site.pub")
    assert (fetching.dist / IMAGE).read_bytes() == (made.dist / IMAGE).read_bytes()
    again = f"{published}-again"
    fetching.inv("registry.mirror", again, "--registry", str(folder))
    pulled = json.loads(made.inv("registry.pull", RECIPE, "--registry", again, "--json").stdout)
    assert pulled["digest"] == record["digest"]
    blob = max((folder / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    with blob.open("r+b") as stream:
        stream.seek(9000)
        stream.write(b"spoiled")
    spoiled = fetching.inv("registry.pull", RECIPE, "--registry", str(folder), check=False)
    assert spoiled.returncode == 1 and "the answer has digest sha256:" in spoiled.stderr
    blob.unlink()
    assert "is missing" in fetching.inv("registry.pull", RECIPE, "--registry", str(folder), check=False).stderr
    (folder / "index.json").write_text("[]")
    broken = fetching.inv("registry.pull", RECIPE, "--registry", str(folder), check=False)
    assert broken.returncode == 1 and "is no index of an OCI image layout" in broken.stderr


def attach_by_hand(image: str, files: dict[str, str]) -> None:
    """Let files refer to an image as another client would, whatever is in them."""
    host, _, rest = image.partition("/")
    repository, _, digest = rest.partition("@")
    client = connect(host)
    for text in (EMPTY.decode(), *files.values()):
        client.upload(repository, sha256_bytes(text.encode()), text.encode())
    layers = [descriptor_of("application/json", text.encode(), {TITLE: name}) for name, text in files.items()]
    subject = fetch_manifest(client, repository, digest).descriptor
    manifest = write_manifest(descriptor_of(EMPTY_MEDIA, EMPTY), layers, None, ARTIFACT, subject)
    attach(client, repository, [manifest], lambda _: False)


SITES = ("alpha", "beta", "mallory")


def test_a_register_of_what_two_sites_have_pushed(made: Site, published: str, fetching: Site) -> None:
    """The results that refer to an image in the registry: whose each is, and what nobody vouches for."""
    identity = read_sif(made.dist / IMAGE).identity()
    of_image = {"provenance__image__recipe": RECIPE, "provenance__image__file__identity": identity}
    keys = ("--key", "alpha.pub", "--key", "beta.pub")
    for name in SITES:
        file = fetching.folder / f"{name}.jsonl"
        measured = [sample(name, "pictures", 8, repeat, **of_image) for repeat in (1, 2, 3)]
        file.write_text("".join(f"{json.dumps(each)}\n" for each in measured))
        sign_results(file, make_key(fetching.folder, name))
    said = fetching.inv("results.push", *(f"{name}.jsonl" for name in SITES), "--registry", published, "--json")
    (image,) = {each["image"] for each in json.loads(said.stdout)}
    results, envelope = ((fetching.folder / f"beta.jsonl{suffix}").read_text() for suffix in ("", ".dsse"))
    forged = results.replace("beta-node", "other-node")
    attach_by_hand(image, {"changed.jsonl": forged, "changed.jsonl.dsse": envelope})
    attach_by_hand(image, {"unsigned.jsonl": results})
    said = fetching.inv("report.site", f"oras://{image}", "--require-signature", *keys, "--json")
    register = json.loads(said.stdout)
    alpha, beta = (key_id(fetching.folder / f"{name}.pub") for name in ("alpha", "beta"))
    assert register["signers"] == {alpha: 3, beta: 3} and register["rankings"] == 1
    reasons = dict(re.findall(r"(\w+)\.jsonl: (.*)", "\n".join(register["unsigned"])))
    assert reasons == {
        "changed": "it differs from what was signed",
        "unsigned": "it is not signed",
        "mallory": "its signature is by none of the keys that this site trusts, or is not valid",
    }
    ranking = (fetching.folder / "public" / "ranking.html").read_text()
    assert 0 < ranking.index(beta) < ranking.index(alpha), "beta is faster"


@pytest.mark.full
def test_the_newcomer_s_four_commands(built: Site, tmp_path: Path) -> None:
    """As the page has them, on a site that has a key, the address of a registry, and nothing else."""
    registry = f"{json.loads(load_settings().stand_in_pins.read_text())['registry']}/test-{token_hex(4)}/images"
    maker = built.using(SIFMARK_DIST=str(tmp_path / "maker"))
    copy_images(built.dist, tmp_path / "maker")
    site = tmp_path / "site"
    site.mkdir()
    maker.inv("image.sign", "cpu", "--key", str(make_key(site, "site")))
    (site / "site.pem").unlink()
    maker.inv("registry.push", "cpu", "--registry", registry)
    for name in ("tasks.py", ".venv"):
        (site / name).symlink_to(paths.CHECKOUT / name)
    page = (paths.CHECKOUT / "docs" / "pull-and-run.md").read_text()
    commands = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 4
    path = f"{paths.CHECKOUT / '.venv' / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "SIFMARK_REGISTRY": registry, "PATH": path}
    said = [call(["bash", "-c", line], cwd=site, env=environment) for line in commands]
    assert "signed by site.pub" in said[0].stdout and "signature: by site.pub" in said[1].stdout
    assert len(list((site / "results").glob("*.json"))) == 3
    assert "Residual autoencoder" in said[3].stdout and "fresh-process repeats" in said[3].stdout


def test_a_catalog_says_what_is_there(made: Site, published: str, fetching: Site) -> None:
    fetching.inv("registry.list", "--registry", published, "--output", "site")
    document = json.loads((fetching.folder / "site" / "catalog.json").read_text())
    check_document("catalog-1.1", document, "catalog.json")
    (image,) = document["images"]
    assert image["recipe"] == RECIPE and image["signed"] and image["stand_in"]
    assert image["identity"] == read_sif(made.dist / IMAGE).identity()
    page = (fetching.folder / "site" / "index.html").read_text()
    assert image["identity"] in page and "test base: for tests only" in page
    assert RECIPE in fetching.inv("registry.list", "--registry", published).stdout
    empty = fetching.inv("registry.list", "--registry", f"{published}-nothing", check=False)
    assert empty.returncode == 1 and "is there" in empty.stderr


@pytest.mark.full  # the gate has it without an image: publish/test_publish_stores.py
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("registry.push", RECIPE), 2, "which registry?"),
        (("registry.pull", RECIPE), 2, "which registry?"),
        (("registry.push", RECIPE, "--registry", "nowhere"), 2, "no registry 'nowhere'"),
        (("registry.push", RECIPE, "--registry", "registry.example/x"), 1, "has a test base"),
        (("registry.pull", RECIPE, "--registry", "127.0.0.1:9/x"), 1, "127.0.0.1:9: "),
        (("registry.push", "cpu", "--registry", "127.0.0.1:9/x"), 1, "cpu.sif"),
    ],
)
def test_what_is_refused_at_once(made: Site, words: tuple[str, ...], code: int, message: str) -> None:
    done = made.inv(*words, check=False)
    assert done.returncode == code and message in done.stderr and "remedy:" in done.stderr
