"""An image that is signed, and each way in which it could be another: real keys, real Apptainer, faults by name."""

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from images.sites import Refused, Site, call, copy_images, make_site

from sifmark.attestations.sbom import CYCLONEDX, SPDX
from sifmark.core.keys import key_id
from sifmark.core.settings import load_settings
from sifmark.engines.apptainer.engine import user_flags
from sifmark.engines.apptainer.sif import METADATA, SBOM, SIGNATURE, read_sif
from sifmark.recipes.labels import BASE_DIGEST

RECIPE = "ipu"  # the smallest
IMAGE = f"{RECIPE}.sif"


def make_key(folder: Path, name: str) -> Path:
    """A private key, with its public half beside it."""
    key = folder / f"{name}.pem"
    call(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key])
    call(["openssl", "pkey", "-in", key, "-pubout", "-out", key.with_suffix(".pub")])
    return key


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site that trusts its own key, with a signed image; tests that change the image take a copy."""
    folder = tmp_path_factory.mktemp("signed")
    site = make_site(folder)
    key = make_key(folder, "site")
    (folder / "sifmark.toml").write_text(f'keys = ["{key.with_suffix(".pub")}"]\n')
    site.inv("build", RECIPE)
    before = read_sif(site.dist / IMAGE).identity()
    site.inv("image.sign", f"resnet50-{RECIPE}", "--key", str(key))
    assert read_sif(site.dist / IMAGE).identity() == before
    yield site
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def copied(signed: Site, tmp_path: Path) -> Site:
    """The same in a folder of its own, whose image a test may change."""
    folder = tmp_path / "site"
    shutil.copytree(signed.folder, folder, ignore=shutil.ignore_patterns("dist"))
    copy_images(signed.dist, folder / "dist")
    return replace(signed.using(SIFMARK_DIST=str(folder / "dist")), folder=folder)


def trust(site: Site, name: str = f"dist/{IMAGE}", **environment: str) -> dict[str, Any]:
    """The verdict of the stage trust."""
    done = site.inv("verify", name, "--stages", "trust", "--json", check=False, **environment)
    verdict: dict[str, Any]
    ((verdict,),) = json.loads(done.stdout).values()
    assert (done.returncode == 0) == (verdict["outcome"] != "failed")
    return verdict


def flip(path: Path, place: int) -> None:
    """Change one bit of a file."""
    with path.open("rb") as stream:
        stream.seek(place)
        byte = stream.read(1)[0]
    put(path, place, bytes([byte ^ 1]))


def sif_add(path: Path, *options: str) -> None:
    extra = path.with_name("extra.json")
    extra.write_text("{}")
    call(["apptainer", "sif", "add", *options, path, extra])


def lose(path: Path, kind: int, name: str = "") -> None:
    """Take an object away, and also what Apptainer leaves of it: its bytes, and the size in the header."""
    entry = next(e for e in read_sif(path).descriptors if e.kind == kind and name in e.name)
    call(["apptainer", "sif", "del", str(entry.id), path])
    put(path, entry.offset, bytes(entry.size))
    left = read_sif(path)
    os.truncate(path, left.end)
    put(path, 120, struct.pack("<q", left.end - left.header.data))


def put(path: Path, place: int, content: bytes) -> None:
    with path.open("r+b") as stream:
        stream.seek(place)
        stream.write(content)


def object_of(path: Path, kind: int, name: str = "") -> int:
    """Where an object begins."""
    return next(e.offset for e in read_sif(path).descriptors if e.kind == kind and name in e.name)


# What is done to the image, and what must be told of it.
ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of the file system": (
        lambda path: flip(path, read_sif(path).system.offset + 5000),
        "from what was signed",
    ),
    "a bit of the labels": (lambda path: flip(path, read_sif(path).metadata.offset + 400), ""),
    "a bit of the SBOM": (lambda path: flip(path, object_of(path, SBOM) + 900), "from what was signed"),
    "a bit of the provenance": (lambda path: flip(path, object_of(path, METADATA, "provenance") + 300), ""),
    "a bit of the signature": (lambda path: flip(path, object_of(path, SIGNATURE) + 300), ""),
    "an object added": (lambda path: sif_add(path, "--datatype", "6"), "was added to it after it was signed"),
    "an object added to the group": (
        lambda path: sif_add(path, "--datatype", "6", "--groupid", "1"),
        "was added to it after it was signed",
    ),
    "an overlay within": (
        lambda path: sif_add(path, "--datatype", "4", "--parttype", "4", "--partfs", "2", "--partarch", "2"),
        "an overlay changes what runs",
    ),
    "the signature taken away": (lambda path: lose(path, SIGNATURE), "the file has changed since its build"),
    "the SBOM taken away": (lambda path: lose(path, SBOM, CYCLONEDX), "was taken away"),
    "the SBOM hidden": (
        lambda path: call(["apptainer", "sif", "del", "4", path]),
        "are in none of its objects",
    ),
    "bytes behind the last object": (
        lambda path: put(path, path.stat().st_size, b"hidden"),
        "are behind its last object",
    ),
    "cut short": (lambda path: os.truncate(path, path.stat().st_size // 2), "reaches beyond the file's end"),
    "no image at all": (lambda path: path.write_text("hello"), "is not a SIF file"),
}


def test_a_signed_image_says_by_whom_and_what_is_in_it(signed: Site) -> None:
    verdict = trust(signed)
    assert verdict["outcome"] == "passed"
    reasons = "\n".join(verdict["reasons"])
    assert "signature: by site.pub" in reasons and "identity and digest as recorded" in reasons
    assert f"provenance: of this image; SBOM: {CYCLONEDX}, {SPDX}" in reasons


def test_every_name_is_a_link_to_the_signed_file(signed: Site) -> None:
    files = {path.stat().st_ino for path in signed.dist.glob("*.sif")}
    assert len(files) == 1 and len(list(signed.dist.glob("*.sif"))) > 10


def test_a_signed_image_runs_where_a_signature_is_asked_for(signed: Site) -> None:
    done = signed.inv("run", f"resnet50-{RECIPE}", "--require-signature", "--", "--version")
    assert "signed by site.pub" in done.stderr and done.stdout.startswith("sifmark ")


QUICK = (
    "a bit of the file system",
    "an object added",
    "an overlay within",
    "the signature taken away",
    "no image at all",
)  # for the gate


@pytest.mark.parametrize("attack", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.full) for n in ATTACKS])
def test_an_image_that_was_changed_is_refused_by_name(copied: Site, attack: str, refused: Refused) -> None:
    change, message = ATTACKS[attack]
    path = copied.dist / IMAGE
    for link in copied.dist.glob("*-*.sif"):
        link.unlink()
    change(path)
    verdict = trust(copied)
    assert verdict["outcome"] == "failed" and message in verdict["reasons"][0], verdict
    refused(attack, verdict["reasons"][0])
    done = copied.inv("run", f"dist/{IMAGE}", "--require-signature", "--", "--version", check=False)
    assert done.returncode != 0 and done.stdout == ""


def test_what_was_changed_is_refused_too_where_its_base_cannot_be_told(
    copied: Site, tmp_path: Path, refused: Refused
) -> None:
    """What an image says of its base, a stand-in where none are known, hides nothing else."""
    shutil.copytree(load_settings().cache / "proofs", tmp_path / "cache" / "proofs")
    elsewhere = {"SIFMARK_CACHE": str(tmp_path / "cache")}
    assert "there are no pins of test bases here" in trust(copied, **elsewhere)["reasons"][1]
    path = copied.dist / IMAGE
    for link in copied.dist.glob("*-*.sif"):
        link.unlink()
    lose(path, SIGNATURE)
    flip(path, read_sif(path).system.offset + 5000)
    verdict = trust(copied, **elsewhere)
    assert verdict["outcome"] == "failed" and "its build recorded" in verdict["reasons"][0], verdict
    refused("another content, on a base that nobody here can tell", verdict["reasons"][0])


def test_another_key_and_none_are_refused_by_name(copied: Site, tmp_path: Path, refused: Refused) -> None:
    other = make_key(tmp_path, "digest").with_suffix(".pub")  # its name is no fault that Apptainer finds
    chosen = copied.folder / "sifmark.toml"
    chosen.write_text(f'keys = ["{other}"]\n')
    assert "by none of the keys that this site trusts" in trust(copied)["reasons"][0]
    refused("another key", trust(copied)["reasons"][0])
    chosen.write_text("")
    asked = copied.inv("run", f"resnet50-{RECIPE}", "--key", str(other), "--", "--version", check=False)
    assert asked.returncode == 1 and asked.stdout == "" and "by none of the keys" in asked.stderr
    chosen.write_text("require_signature = true\n")
    assert "no key is trusted here" in trust(copied)["reasons"][0]
    chosen.write_text('keys = ["nowhere.pub"]\n')
    missing = copied.inv("verify", f"resnet50-{RECIPE}", "--stages", "trust", check=False)
    assert missing.returncode == 2 and f"there is no key {copied.folder / 'nowhere.pub'}" in missing.stderr
    refused("no such key", missing.stderr)
    chosen.write_text("")
    verdict = trust(copied)
    assert verdict["outcome"] == "passed" and "signature: key unknown" in verdict["reasons"][-1]


def test_an_unsigned_image_is_refused_where_the_site_asks_for_signatures(
    copied: Site, tmp_path: Path, refused: Refused
) -> None:
    copied.inv("build", RECIPE, "--force", SOURCE_DATE_EPOCH="1000000")  # an image that no other test has built
    assert trust(copied)["reasons"][-1] == "signature: none", "to have been built here is a proof of its own"
    elsewhere = copied.with_cache(tmp_path / "cache")  # of somebody who did not build it
    verdict = trust(elsewhere)
    assert verdict["outcome"] == "failed" and verdict["reasons"][0] == "it is not signed"
    refused("a record that came along with its image", verdict["reasons"][0])
    key = str(copied.folder / "site.pem")
    done = elsewhere.inv("image.sign", RECIPE, "--key", key, check=False)
    assert done.returncode == 1 and "was not built here, nor fetched with a trusted signature" in done.stderr
    trusting = (copied.folder / "sifmark.toml").read_text()
    (copied.folder / "sifmark.toml").write_text("")
    unproven = trust(elsewhere)
    assert unproven["outcome"] == "skipped" and "it was not built here, and it had no trusted" in unproven["reasons"][0]
    (copied.folder / "sifmark.toml").write_text(trusting)
    with (copied.folder / "sifmark.toml").open("a") as stream:
        stream.write("require_signature = true\n")
    assert trust(copied)["reasons"][0] == "it is not signed"
    done = copied.inv("run", f"resnet50-{RECIPE}", "--", "--version", check=False)
    assert done.returncode == 1 and done.stdout == "" and "it is not signed" in done.stderr
    refused("no signature", trust(copied)["reasons"][0])
    printed = copied.inv("run", f"resnet50-{RECIPE}", "--print", check=False)
    assert printed.returncode == 1 and printed.stdout == "" and "it is not signed" in printed.stderr
    started = copied.inv("verify", f"image_compression-{RECIPE}", "--stages", "smoke", check=False)
    assert started.returncode == 1 and "it is not signed" in started.stdout
    doctor = copied.inv("doctor", "--image", RECIPE, check=False)
    assert doctor.returncode == 1 and "it is not signed" in doctor.stderr


@pytest.mark.full
def test_the_signature_of_another_image_does_not_hold_elsewhere(copied: Site) -> None:
    """The parts of one image with the signature of another: each part is what it was, together they are not."""
    theirs = read_sif(copied.dist / IMAGE)
    entry = next(entry for entry in theirs.descriptors if entry.kind == SIGNATURE)
    signature = copied.folder / "signature"
    theirs.copy(entry, signature)
    copied.inv("build", RECIPE, "--force", SOURCE_DATE_EPOCH="86400")
    options = ["--datatype", "5", "--signhash", "1", "--signentity", "0" * 40, "--groupid", "0", "--link", "4026531841"]
    call(["apptainer", "sif", "add", *options, copied.dist / IMAGE, signature])
    verdict = trust(copied)
    assert verdict["outcome"] == "failed", verdict


@pytest.mark.full
def test_keys_of_the_pgp_keyring_sign_too(copied: Site, refused: Refused) -> None:
    keyring = copied.using(APPTAINER_KEYSDIR=str(copied.folder / "keys"))
    for name in ("Site", "Other"):
        words = [
            "--name",
            name,
            "--email",
            f"{name}@example.org",
            "--comment",
            "none",
            "--password",
            "",
            "--push=false",
        ]
        call(["apptainer", "key", "newpair", *words], env=keyring.environment)
    listed = call(["apptainer", "key", "list"], env=keyring.environment).stdout
    site, other = (line.split()[-1] for line in listed.splitlines() if "Fingerprint" in line)

    def trusting(*keys: str) -> dict[str, Any]:
        (copied.folder / "sifmark.toml").write_text(f"keys = {json.dumps(keys)}\n")
        return trust(keyring)

    copied.inv("build", RECIPE, "--force")
    keyring.inv("image.sign", RECIPE, "--pgp", "0")
    assert f"signature: by {site.lower()}" in trusting(site)["reasons"]
    assert trusting("0" * 40)["outcome"] == "failed"
    call(["apptainer", "sign", "--keyidx", "1", copied.dist / IMAGE], env=keyring.environment)
    verdict = trusting(site)
    assert verdict["outcome"] == "failed"
    assert "by none of the keys" in verdict["reasons"][0], "one of them is a stranger's"
    refused("a PGP signature of a stranger beside a trusted one", verdict["reasons"][0])
    assert trusting(site, other)["outcome"] == "passed"
    keyring.inv("image.sign", RECIPE, "--key", str(copied.folder / "site.pem"))  # in place of both
    public = copied.folder / "site.pub"
    assert f"signature: by {key_id(public)}" in trusting(str(public))["reasons"]


@pytest.mark.full  # the gate has it without an image: trust/test_trust_checks.py
def test_keys_of_the_command_line_hold_for_it_alone(copied: Site, tmp_path: Path) -> None:
    other = make_key(tmp_path, "other").with_suffix(".pub")
    words = ("verify", f"dist/{IMAGE}", "--stages", "trust", "--key")
    refused = copied.inv(*words, str(other), check=False)
    assert refused.returncode == 1 and "by none of the keys" in refused.stdout
    (copied.folder / "sifmark.toml").unlink()
    assert "signature: by site.pub" in copied.inv(*words, str(copied.folder / "site.pub")).stdout
    copied.inv("build", RECIPE, "--force")
    unsigned = copied.inv(*words, str(copied.folder / "site.pub"), check=False)
    assert unsigned.returncode == 1 and "it is not signed" in unsigned.stdout


@pytest.mark.full  # the gate has it without an image: trust/test_trust_checks.py
def test_a_trusted_signature_stands_in_for_the_record_of_the_build(copied: Site) -> None:
    for record in copied.dist.glob(f"{RECIPE}*.json"):
        record.unlink()
    verdict = trust(copied)
    assert verdict["outcome"] == "passed" and "there is no record of its build here" in verdict["reasons"][0]
    (copied.folder / "sifmark.toml").unlink()
    assert trust(copied)["outcome"] == "skipped"


@pytest.mark.full  # the gate has it without an image: trust/test_trust_checks.py
def test_a_signed_image_on_another_base_than_is_pinned_here_says_so(copied: Site, tmp_path: Path) -> None:
    """Pins move on; without a signature, nobody vouches for such an image."""
    elsewhere = copied.with_cache(tmp_path / "cache")
    shutil.copytree(load_settings().cache / "proofs", tmp_path / "cache" / "proofs")
    pins = tmp_path / "cache" / "stand-in" / "pins.json"
    digest = read_sif(copied.dist / IMAGE).labels()[BASE_DIGEST]
    pins.write_text(pins.read_text().replace(digest, f"sha256:{'5' * 64}"))
    verdict = trust(elsewhere)
    assert verdict["outcome"] == "passed" and f"the recipe here pins sha256:{'5' * 64}" in verdict["reasons"][1]
    structure = elsewhere.inv("verify", f"dist/{IMAGE}", "--stages", "structure").stdout
    assert "another one is pinned here, its files were not compared" in structure
    (copied.folder / "sifmark.toml").unlink()
    verdict = trust(elsewhere)
    assert verdict["outcome"] == "failed"
    assert "pinned is" in verdict["reasons"][0] and "check out" in verdict["reasons"][1]


@pytest.mark.full  # the gate has it without an image: trust/test_trust_checks.py
def test_a_record_that_came_along_proves_nothing(copied: Site, tmp_path: Path, refused: Refused) -> None:
    copied.inv("build", RECIPE, "--force")
    elsewhere = tmp_path / "sent"
    elsewhere.mkdir()
    for name in (IMAGE, f"{IMAGE}.json"):
        shutil.copy(copied.dist / name, elsewhere)
    assert trust(copied, str(elsewhere / IMAGE))["reasons"][0] == "it is not signed"
    refused("a record beside an image from elsewhere", trust(copied, str(elsewhere / IMAGE))["reasons"][0])
    (copied.folder / "sifmark.toml").unlink()
    verdict = trust(copied, str(elsewhere / IMAGE))
    assert verdict["outcome"] == "skipped" and "there is no record of its build here" in verdict["reasons"][0]


@pytest.mark.full
def test_a_signature_that_nobody_knows_explains_no_change(copied: Site) -> None:
    (copied.folder / "sifmark.toml").unlink()
    call(["apptainer", "sif", "add", "--datatype", "5", "--signhash", "1", "--signentity", "0" * 40, "--groupid", "0",
          "--link", "4026531841", copied.dist / IMAGE, copied.folder / "site.pub"])  # fmt: skip
    verdict = trust(copied)
    assert verdict["outcome"] == "failed" and "the file has changed since its build" in verdict["reasons"][0]


def test_what_was_changed_is_not_signed(copied: Site, refused: Refused) -> None:
    key, image = str(copied.folder / "site.pem"), copied.dist / IMAGE
    lose(image, SBOM)
    before = image.read_bytes()
    done = copied.inv("image.sign", RECIPE, "--key", key, check=False)
    assert done.returncode == 1 and "the file has changed since its build" in done.stderr
    refused("to be signed after a change", done.stderr)
    flip(image, read_sif(image).system.offset + 5000)
    done = copied.inv("image.sign", RECIPE, "--key", key, check=False)
    assert done.returncode == 1 and "its build recorded sha256:" in done.stderr
    (copied.dist / f"{IMAGE}.json").unlink()
    done = copied.inv("image.sign", RECIPE, "--key", key, check=False)
    assert done.returncode == 1 and "was not built here, nor fetched with a trusted signature" in done.stderr
    flip(image, read_sif(image).system.offset + 5000)
    assert image.read_bytes() == before


def test_an_image_under_another_name_is_told(copied: Site, refused: Refused) -> None:
    shutil.copy(copied.dist / IMAGE, copied.dist / "resnet50-cpu.sif")
    for words in (("run", "resnet50-cpu", "--", "--version"), ("verify", "resnet50-cpu")):
        done = copied.inv(*words, check=False)
        assert done.returncode == 1 and f"is an image of recipe {RECIPE}" in done.stderr
    refused("an image of another recipe under its name", done.stderr)


@pytest.mark.full  # the gate has it without an image: trust/test_trust_stages.py
def test_only_known_stages_are_verified(signed: Site) -> None:
    done = signed.inv("verify", RECIPE, "--stages", "trust,beauty", check=False)
    assert done.returncode == 2 and "no stage 'beauty'" in done.stderr


@pytest.mark.full  # the gate has it without an image: commands/test_sign_command.py
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "which key should sign?"),
        (("--key", "nowhere.pem"), "there is no file nowhere.pem"),
        (("--pgp", "one"), "--pgp 'one' is no number"),
        (("--key", "a.pem", "--pgp", "0"), "which key should sign?"),
    ],
)
def test_what_sign_cannot_do(signed: Site, words: tuple[str, ...], message: str) -> None:
    done = signed.inv("image.sign", RECIPE, *words, check=False)
    assert done.returncode == 2 and message in done.stderr


def test_a_public_key_does_not_sign_and_the_image_stays(signed: Site) -> None:
    before = (signed.dist / IMAGE).stat()
    done = signed.inv("image.sign", RECIPE, "--key", str(signed.folder / "site.pub"), check=False)
    assert done.returncode == 2 and "is a public key; signing needs the private one" in done.stderr
    assert (signed.dist / IMAGE).stat().st_ino == before.st_ino and not list(signed.dist.glob(".*partial*"))


def test_the_lists_of_packages_hold_what_is_installed(signed: Site) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from spdx_tools.spdx.parser.json.json_parser import parse_from_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    image = signed.dist / IMAGE
    sif = read_sif(image)
    texts = {entry.name: sif.read(entry) for entry in sif.descriptors if entry.kind == SBOM}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(texts[CYCLONEDX].decode()) is None
    path = signed.folder / SPDX
    path.write_bytes(texts[SPDX])
    assert validate_full_spdx_document(parse_from_file(str(path))) == []
    urls = {entry.get("purl", "") for entry in json.loads(texts[CYCLONEDX])["components"]}
    query = ["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"]
    output = call(["apptainer", "exec", *user_flags(), str(image), *query]).stdout
    installed = dict(line.split() for line in output.splitlines())
    listed = {unquote(url.split("/")[2].split("@")[0]) for url in urls if url.startswith("pkg:deb/")}
    assert listed == {name.split(":")[0] for name in installed}
    assert any(url.startswith("pkg:pypi/jsonschema@") for url in urls)


def test_provenance_reads_by_the_rules_of_in_toto(signed: Site) -> None:
    from google.protobuf.json_format import ParseDict
    from in_toto_attestation.v1.statement import Statement
    from in_toto_attestation.v1.statement_pb2 import Statement as Message

    sif = read_sif(signed.dist / IMAGE)
    entry = sif.named("provenance.json")
    assert entry is not None
    statement = json.loads(sif.read(entry))
    Statement.copy_from_pb(ParseDict(statement, Message())).validate()
    assert [subject["digest"]["sha256"] for subject in statement["subject"]] == [
        sif.digest(sif.system).hex(),
        sif.digest(sif.metadata).hex(),
    ]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["resolvedDependencies"][0]["annotations"] == {"standIn": True}
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert {"gitCommit": head} in [dependency["digest"] for dependency in definition["resolvedDependencies"]]
