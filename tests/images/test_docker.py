"""The Docker engine for real: built, named, verified, run, refuted, and converted into a SIF."""

import io
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import requests
from docker.errors import ImageNotFound
from images.sites import Refused, Site, answer, call, docker_alone, lacks_wheels, make_site
from images.test_trust import make_key

from sifmark import __version__
from sifmark.core.files import compact_json, sha256_bytes
from sifmark.core.keys import key_id
from sifmark.core.settings import load_settings
from sifmark.engines.apptainer.sif import read_sif
from sifmark.engines.docker import signature
from sifmark.engines.docker.attestations import attestation_folder
from sifmark.engines.docker.engine import Docker
from sifmark.oci.images import connect, fetch_manifest
from sifmark.oci.manifest import INDEX_MEDIA, MANIFEST_MEDIA
from sifmark.recipes.names import workloads_of
from sifmark.recipes.recipe import load_recipe

ENGINE = Docker(load_settings())
attributes = ENGINE.daemon.attributes
SMALL = "image_compression"
# One of each vendor, and one with TensorFlow: test_recipes.py builds every recipe, and Docker adds its layers alike.
OTHERS = ("cuda", "rocm", "xpu", "ipu", "cpu_tf")

NO_COSIGN = pytest.mark.skipif(not shutil.which("cosign"), reason="no cosign here: ci/setup/cosign")
pytestmark = pytest.mark.skipif(ENGINE.version() is None, reason="no Docker Engine answers: ci/setup/docker")


@pytest.fixture(scope="module")
def shop() -> Iterator[Site]:
    """A site whose engine is Docker, with the images of recipe cpu."""
    folder = Path(tempfile.mkdtemp(prefix="sifmark-test-"))
    site = make_site(folder).using(SIFMARK_ENGINE="docker")
    with docker_alone():
        site.inv("build", "cpu", "--force")
        yield site
    shutil.rmtree(folder, ignore_errors=True)


def verdicts(site: Site, name: str, **environment: str) -> dict[str, tuple[str, str]]:
    """Outcome and reasons by stage."""
    ((_, stages),) = json.loads(site.inv("verify", name, "--json", check=False, **environment).stdout).items()
    return {verdict["stage"]: (verdict["outcome"], " ".join(verdict["reasons"])) for verdict in stages}


def test_a_second_build_makes_nothing(shop: Site) -> None:
    before = attributes("sifmark:cpu")
    assert "up to date" in shop.inv("build", "cpu").stdout
    assert attributes("sifmark:cpu") == before
    rows = json.loads(shop.inv("list", "--json").stdout)["images"]
    assert {row["state"] for row in rows if row["recipe"] == "cpu"} == {"built"}


def test_names_add_metadata_and_no_layer(shop: Site) -> None:
    whole = attributes("sifmark:cpu")
    assert whole is not None
    for workload in workloads_of("cpu"):
        named = attributes(f"sifmark:{workload}-cpu")
        assert named is not None and named["RootFS"] == whole["RootFS"]
        assert named["Config"]["Labels"] == whole["Config"]["Labels"]
        assert set(named["Config"]["Env"]) - set(whole["Config"]["Env"]) == {f"SCIF_APPNAME={workload}"}


@pytest.mark.matrix("docker", recipe="cpu")
def test_it_passes_every_stage(shop: Site) -> None:
    stages = verdicts(shop, f"{SMALL}-cpu")
    assert {stage: outcome for stage, (outcome, _) in stages.items()} == dict.fromkeys(stages, "passed"), stages
    assert "this name adds SCIF_APPNAME" in stages["trust"][1]
    assert "provenance: of this image; SBOM: sbom.cyclonedx.json, sbom.spdx.json" in stages["trust"][1]
    assert "unchanged layers of the base, and 2 of ours" in stages["structure"][1]
    assert f"{SMALL}: completed" in stages["smoke"][1]


def test_papers_that_are_of_another_image_are_found(shop: Site) -> None:
    statement = attestation_folder("cpu", load_settings().cache) / "provenance.json"
    whole = statement.read_text()
    packages = {
        entry["name"]
        for entry in json.loads((attestation_folder("cpu", load_settings().cache) / "sbom.cyclonedx.json").read_text())[
            "components"
        ]
    }
    assert {"torch", "bash", "jsonschema"} <= packages
    document = json.loads(whole)
    document["subject"][0]["digest"]["sha256"] = "0" * 64
    try:
        statement.write_text(json.dumps(document))
        outcome, said = verdicts(shop, f"{SMALL}-cpu")["trust"]
        assert outcome == "failed" and "its provenance is of another image" in said
    finally:
        statement.write_text(whole)


def test_results_are_those_of_the_sif_in_identity_and_configuration(shop: Site, built: Site) -> None:
    words = (f"{SMALL}-cpu", "--", "--smoke", "--steps", "3", "--output")
    shop.inv("run", *words, "docker.json")
    built.inv("run", *words, str(built.folder / "sif.json"))
    ours, other = (json.loads(path.read_text()) for path in (shop.folder / "docker.json", built.folder / "sif.json"))
    assert ours["workload"] == other["workload"] and ours["status"]["state"] == "completed"
    assert ours["configuration"] == other["configuration"]
    image, of_sif = ours["provenance"]["image"], other["provenance"]["image"]
    apart = {"revision": None, "file": None}
    assert {**image, **apart} == {**of_sif, **apart}
    (traced,) = json.loads(shop.inv("results.trace", "docker.json", "--json").stdout)
    standings = {link["name"]: link["state"] for link in traced["links"]}
    assert standings["image"] == standings["provenance"] == standings["recipe"] == "verified"
    assert standings["signature"] == "missing"


def test_an_argument_beats_the_name_and_the_recipe_s_image_asks(shop: Site) -> None:
    tool = ENGINE
    done = call(tool.command("sifmark:resnet50-cpu", "run", [SMALL, "--smoke"], tool.isolation_flags(None)))
    assert answer(done)["workload"]["name"] == SMALL
    done = call(tool.command("sifmark:cpu", "run", [], tool.isolation_flags(None)), check=False)
    assert done.returncode == 2 and "which workload?" in done.stderr


def test_a_signal_reaches_the_workload(shop: Site) -> None:
    workload = ["run", f"{SMALL}-cpu", "--", "--duration", "100", "--skip-numerics"]
    with shop.start(*workload, until="step") as process:
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert json.loads(out)["status"]["state"] == "interrupted"


LONG_STUDY = """
title = "Long"

[[system]]
name  = "here"
image = "cpu"

[[run]]
name          = "long"
workload      = "lstm"
batch_size    = 1
duration      = "10m"
skip_numerics = true
"""


def containers() -> list[str]:
    """The IDs of the containers that runs of studies are in."""
    return [str(each.id) for each in ENGINE.daemon.sdk.containers.list(filters={"name": "sifmark-"})]


def family(process: int) -> list[int]:
    """A process and all that it started."""
    children = call(["pgrep", "--parent", str(process)], check=False).stdout.split()
    return [process, *(each for child in children for each in family(int(child)))]


def wait_for_containers(*before: str) -> list[str]:
    """Wait until there are containers, and none of those before."""
    until = time.monotonic() + 120
    while not (now := containers()) or set(now) & set(before):
        assert time.monotonic() < until, "no container came"
        time.sleep(0.2)
    return now


def test_a_container_that_a_killed_study_left_behind_ends_before_its_run_is_done_again(shop: Site) -> None:
    (shop.folder / "long.toml").write_text(LONG_STUDY)
    shop = shop.with_cache(shop.folder / "cache")  # studies that share one take turns
    with shop.start("study.run", "./long.toml", until="run long") as process:
        (left,) = wait_for_containers()
        for each in reversed(family(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
    assert containers() == [left]
    with shop.start("study.run", "./long.toml", until="run long") as process:
        assert len(wait_for_containers(left)) == 1
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert containers() == []
    row = json.loads(shop.inv("study.status", "./long.toml", "--json").stdout)
    assert row["totals"]["to do"] == 1


@pytest.mark.full  # the gate refutes one in images-trust
def test_another_image_under_the_name_is_refuted(shop: Site) -> None:
    whole = ENGINE.daemon.sdk.images.get("sifmark:cpu")
    folder = shop.folder / "other"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM sifmark:cpu\nENV PYTHONPATH=/tmp\n")
    without_runs = {"PATH": str(folder)}
    other, _ = ENGINE.daemon.sdk.images.build(path=str(folder), network_mode="none", rm=True)
    try:
        other.tag("sifmark", "cpu")
        refused = shop.inv("verify", f"{SMALL}-cpu", check=False, **without_runs)
        assert refused.returncode == 1 and "is another image than that of its recipe" in refused.stderr
        done = shop.inv("build", "cpu")
        assert "up to date" in done.stdout, "the labels are those of today's recipe"
        outcome, reason = verdicts(shop, f"{SMALL}-cpu", **without_runs)["trust"]
        assert outcome == "failed" and "its build recorded" in reason
        refused = shop.inv("image.to-sif", "cpu", check=False)
        assert refused.returncode == 1 and "is not the one whose build was recorded" in refused.stderr
    finally:
        whole.tag("sifmark", "cpu")
        shop.inv("build", "cpu")


def test_a_base_that_cannot_be_fetched_is_named(shop: Site, cold: Site) -> None:
    pins = cold.folder / "cache" / "stand-in" / "pins.json"
    document = json.loads(pins.read_text())
    for platform in document["bases"][load_recipe("ipu").base.reference].values():
        platform["digest"] = f"sha256:{'0' * 64}"
    pins.write_text(json.dumps(document))
    done = cold.inv("build", "ipu", check=False, SIFMARK_ENGINE="docker")
    assert done.returncode == 1 and "Docker: " in done.stderr and "is the base's registry up?" in done.stderr


def tree(path: Path) -> set[tuple[str, ...]]:
    """Mode, owner, size of files, and name of everything that is not about the build itself."""
    listed = call(["unsquashfs", "-offset", str(read_sif(path).system.offset), "-lls", path]).stdout.splitlines()
    rows = [line.split(maxsplit=5) for line in listed if line[:1] in "-dlbcps" and "squashfs-root/" in line]
    return {
        (mode, owner, "" if mode[0] == "d" else size, name)
        for mode, owner, size, _, _, name in rows
        if "/.singularity.d" not in name
    }


@pytest.mark.full
def test_converted_it_is_the_sif_that_a_build_gives(shop: Site, site: Site) -> None:
    recipe = "ipu"
    shop.inv("build", recipe, "--force")
    shop.inv("image.to-sif", recipe)
    site.inv("build", recipe)
    converted, direct = shop.dist / f"{recipe}.sif", site.dist / f"{recipe}.sif"
    assert tree(converted) ^ tree(direct) == set()
    labels = read_sif(converted).labels()
    ours = {key for key in labels if key.startswith(("org.sifmark", "org.opencontainers"))}
    ours.remove("org.sifmark.converted-from")
    assert {key: labels[key] for key in ours} == {key: read_sif(direct).labels()[key] for key in ours}
    image = attributes(f"sifmark:{recipe}")
    assert image is not None and labels["org.sifmark.converted-from"] == image["Id"]
    assert "nothing to convert" in shop.inv("image.to-sif", recipe).stderr
    verdict = verdicts(shop.using(SIFMARK_ENGINE="apptainer"), f"{SMALL}-{recipe}")
    assert {verdict[stage][0] for stage in ("trust", "structure", "golden")} == {"passed"}, verdict
    assert verdict["smoke"][0] == ("skipped" if load_recipe(recipe).access else "passed"), verdict


@pytest.mark.full
@pytest.mark.matrix("docker")
@pytest.mark.parametrize("recipe", OTHERS)
def test_the_recipe_of_a_vendor_builds_and_a_workload_runs_from_it(shop: Site, recipe: str) -> None:
    planned = json.loads(shop.inv("build", f"{SMALL}-{recipe}", "--dry-run", "--json").stdout)
    if planned[0]["action"] == "skip":
        pytest.skip(planned[0]["reason"])
    done = shop.inv("build", recipe, "--force", check=False)
    if done.returncode and lacks_wheels(recipe, done.stderr):
        pytest.skip(f"no index here has the framework's wheel of recipe {recipe}")
    assert done.returncode == 0, done.stderr
    stages = verdicts(shop, f"{SMALL}-{recipe}")
    assert {stages[stage][0] for stage in ("trust", "structure", "golden")} == {"passed"}, stages
    assert stages["smoke"][0] == ("skipped" if load_recipe(recipe).access else "passed"), stages
    tool = ENGINE
    arguments = ["--smoke", "--device", "cpu"]
    done = call(tool.command(f"sifmark:{SMALL}-{recipe}", "run", arguments, tool.isolation_flags(None)), check=False)
    assert answer(done)["status"]["state"] in ("completed", "crashed"), "crashed: a stand-in without a framework"


@pytest.fixture(scope="module")
def registry() -> str:
    """A path in the real registry that nobody else uses."""
    return f"{json.loads(load_settings().stand_in_pins.read_text())['registry']}/test-{token_hex(4)}/images"


@pytest.fixture
def pushed(shop: Site, registry: str) -> Iterator[str]:
    """The digest of the recipe's image in the registry; the engine has it as it was at the end."""
    yield json.loads(shop.inv("registry.push", "cpu", "--registry", registry, "--json").stdout)["digest"]
    forget_all(registry)
    shop.inv("build", "cpu")


def forget_all(registry: str) -> None:
    """Let the engine have the recipe's image under no name, so that a pull has something to do."""
    list(ENGINE.remove("cpu"))
    for image in ENGINE.daemon.sdk.images.list(all=True):
        for name in [*image.tags, *image.attrs.get("RepoDigests", [])]:
            if name.startswith(registry):
                with suppress(ImageNotFound):  # a digest goes with the last tag
                    ENGINE.daemon.sdk.images.remove(name)


@dataclass(frozen=True)
class OtherSite:
    """A site that pulls from the registry and trusts one key, beside the site that builds."""

    site: Site
    registry: str
    key: Path  # the private one
    refused: Refused

    @property
    def public(self) -> Path:
        """The half of the key that it trusts."""
        return self.key.with_suffix(".pub")

    @property
    def trusting(self) -> dict[str, str]:
        """The setting with which this site asks for signatures."""
        return {"SIFMARK_KEYS": str(self.public)}

    @property
    def fetch(self) -> tuple[str, ...]:
        """The command that pulls a name of the recipe, if it is signed."""
        return ("registry.pull", "resnet50-cpu", "--registry", self.registry, "--key", str(self.public))

    def refuses(self, what: str, why: str) -> None:
        """Assert that it pulls nothing, for the reason `why`."""
        said = self.site.inv(*self.fetch, check=False)
        assert said.returncode == 1 and why in said.stderr, said.stderr
        assert attributes("sifmark:cpu") is None
        self.refused(f"Docker: {what}", said.stderr)


@pytest.fixture
def other_site(shop: Site, registry: str, tmp_path: Path, refused: Refused) -> OtherSite:
    site = replace(shop.with_cache(tmp_path / "cache"), folder=tmp_path)
    return OtherSite(site, registry, make_key(tmp_path, "site"), refused)


def publish_signed(shop: Site, registry: str, key: Path) -> None:
    """Build, push and sign the recipe's image."""
    shop.inv("build", "cpu")
    shop.inv("registry.push", "cpu", "--registry", registry)
    shop.inv("image.sign", "cpu", "--registry", registry, "--key", str(key))


@NO_COSIGN
@pytest.mark.full  # the gate has this of attestations: refuse_swapped_attestations
def test_what_is_not_signed_is_pulled_only_where_no_key_is_asked_for(
    shop: Site, registry: str, pushed: str, other_site: OtherSite
) -> None:
    forget_all(registry)
    other_site.refuses("not signed", "it is not signed")
    site, keys = other_site.site, other_site.trusting
    done = site.inv("registry.pull", "cpu", "--registry", registry, check=False, **keys)
    assert done.returncode == 1 and "it is not signed" in done.stderr, "the site has keys"
    site.inv("registry.pull", "cpu", "--registry", registry)
    assert "it is not signed" in verdicts(site, f"{SMALL}-cpu", **keys)["trust"][1], "pulled when it had none"
    assert verdicts(site, f"{SMALL}-cpu")["trust"][0] == "skipped"
    for words in (
        ("image.sign", "cpu", "--registry", registry, "--key", str(other_site.key)),
        ("image.to-sif", "cpu"),
    ):
        said = site.inv(*words, check=False)
        assert said.returncode == 1 and "was not built here" in said.stderr, "fetched, and nobody knows from whom"


@NO_COSIGN
@pytest.mark.full  # the gate has this of attestations: refuse_swapped_attestations
def test_another_s_signature_is_refused(
    shop: Site, registry: str, pushed: str, other_site: OtherSite, tmp_path: Path
) -> None:
    publish_signed(shop, registry, make_key(tmp_path, "other"))
    forget_all(registry)
    other_site.refuses("another's signature", "its signature is by none of the keys that this site trusts")


@pytest.mark.full  # the gate does so with SIF files
@NO_COSIGN
def test_what_was_pushed_and_signed_is_pulled_verified_run_and_traced(
    shop: Site, registry: str, pushed: str, other_site: OtherSite
) -> None:
    public, trusting = other_site.public, other_site.trusting
    publish_signed(shop, registry, other_site.key)
    signed = attributes("sifmark:cpu")
    for name in ("cpu", f"{SMALL}-cpu"):  # as one who has cosign alone checks them
        (reference,) = [each for each in ENGINE.inspect(f"sifmark:{name}").references if each.startswith(registry)]
        repository, _, digest = reference.partition("@")
        documents = [f"{repository}@{entry['digest']}" for entry in listed_by_tag(repository, digest)]
        assert len(documents) == 3
        for each in (reference, *documents):
            assert signature.signer(each, [str(public)]) == key_id(public)
    refuse_swapped_attestations(registry, other_site.refuses)
    (listed,) = json.loads(shop.inv("registry.list", "--registry", registry, "--json").stdout)["images"]
    assert (listed["recipe"], listed["signed"], listed["file"]) == ("cpu", True, signed and signed["Id"])
    assert listed["reference"] == f"{registry}/cpu:{__version__}-docker" and listed["size"] > 100_000_000
    forget_all(registry)
    record = json.loads(other_site.site.inv(*other_site.fetch, "--json").stdout)
    assert record["signed_by"] == key_id(public)
    assert [record[key] for key in ("digest", "identity")] == [listed[key] for key in ("digest", "identity")]
    pulled = attributes("sifmark:cpu")
    assert pulled is not None and signed is not None and pulled["Id"] == signed["Id"]
    stages = verdicts(other_site.site, f"{SMALL}-cpu", **trusting)
    assert {outcome for outcome, _ in stages.values()} <= {"passed", "skipped"}, stages
    assert "signature: by site.pub" in stages["trust"][1] and "provenance: of this image" in stages["trust"][1]
    run = ("run", f"{SMALL}-cpu", "--require-signature", "--", "--smoke", "--output", "result.json")
    site = other_site.site.using(**trusting)
    site.inv(*run)
    result = json.loads((site.folder / "result.json").read_text())
    assert result["provenance"]["image"]["file"]["signer"] == key_id(public)
    assert "contradicted" not in site.inv("results.trace", "result.json").stdout
    assert vouched_for(site) == {"verified"}, "the attestations were signed when they were fetched"


@NO_COSIGN
@pytest.mark.full
def test_attestations_of_an_image_fetched_without_a_key_are_not_verified(
    shop: Site, registry: str, pushed: str, other_site: OtherSite, tmp_path: Path
) -> None:
    publish_signed(shop, registry, other_site.key)
    forget_all(registry)
    other_site.site.inv(*other_site.fetch)
    run = ("run", f"{SMALL}-cpu", "--require-signature", "--", "--smoke", "--output", "result.json")
    other_site.site.using(**other_site.trusting).inv(*run)
    fresh = other_site.site.with_cache(tmp_path / "fresh")
    forget_all(registry)
    fresh.inv("registry.pull", "cpu", "--registry", registry)
    assert vouched_for(fresh.using(**other_site.trusting)) == {"unverified"}, "the image's signature is not theirs"


def listed_by_tag(repository: str, digest: str) -> list[dict[str, Any]]:
    """What refers to an image, as a client finds it where the registry has no API of referrers: by plain HTTP."""
    host, _, name = repository.partition("/")
    session = requests.Session()
    session.trust_env = False
    assert session.get(f"http://{host}/v2/{name}/referrers/{digest}").status_code == 404
    headers = {"Accept": INDEX_MEDIA}
    answer = session.get(f"http://{host}/v2/{name}/manifests/{digest.replace(':', '-')}", headers=headers)
    assert answer.headers["Content-Type"] == INDEX_MEDIA
    entries: list[dict[str, Any]] = answer.json()["manifests"]
    return entries


def digest_of(registry: str, name: str) -> str:
    host, _, path = registry.partition("/")
    return fetch_manifest(connect(host), f"{path}/{name}", f"{__version__}-docker").digest


def relist(repository: str, digest: str, entries: list[dict[str, Any]]) -> None:
    """Let these and no others refer to an image, as whoever may write to the registry can."""
    host, _, name = repository.partition("/")
    index = compact_json({"schemaVersion": 2, "mediaType": INDEX_MEDIA, "manifests": entries})
    connect(host).put_manifest(name, digest.replace(":", "-"), index, INDEX_MEDIA)


def put_forged(repository: str, entry: dict[str, Any], **changes: object) -> dict[str, Any]:
    """An attestation with some of its fields changed, and nobody's signature."""
    host, _, name = repository.partition("/")
    _, manifest = connect(host).document(f"{name}/manifests/{entry['digest']}", (MANIFEST_MEDIA,))
    content = compact_json({**manifest, **changes})
    connect(host).put_manifest(name, sha256_bytes(content), content, MANIFEST_MEDIA)
    return {**entry, "digest": sha256_bytes(content), "size": len(content)}


def copy_signed(origin: str, repository: str, digest: str) -> None:
    """Bring an attestation into another repository together with its signature."""
    host, _, source = origin.partition("/")
    client, target = connect(host), repository.partition("/")[2]
    for reference in (f"{digest.replace(':', '-')}.sig", digest):
        manifest = fetch_manifest(client, source, reference)
        for blob in (manifest.config, *manifest.layers):
            client.upload(target, blob.digest, b"", source)
        client.put_manifest(target, reference, manifest.content, MANIFEST_MEDIA)


def refuse_swapped_attestations(registry: str, refuses: Refused) -> None:
    """Signed are those of two images; no other than the three of an image are taken for it."""
    repository, digest = f"{registry}/cpu", digest_of(registry, "cpu")
    genuine = listed_by_tag(repository, digest)
    of_other = listed_by_tag(f"{registry}/{SMALL}-cpu", digest_of(registry, f"{SMALL}-cpu"))
    spdx = next(entry for entry in genuine if entry["artifactType"] == "application/spdx+json")
    others = [entry for entry in genuine if entry != spdx]
    forged = put_forged(repository, spdx, added=1)
    replayed = next(entry for entry in of_other if entry["artifactType"] == spdx["artifactType"])
    copy_signed(f"{registry}/{SMALL}-cpu", repository, replayed["digest"])
    forget_all(registry)
    for what, entries, why in (
        ("a forged list of packages", [forged, *others], "it is not signed"),
        ("a second list of packages", [forged, *genuine], "2 attestations of type application/spdx+json"),
        ("another image's, signed", [replayed, *others], "is about another image"),
        ("no list of packages", others, "0 attestations of type application/spdx+json"),
    ):
        relist(repository, digest, entries)
        refuses(what, why)
    relist(repository, digest, genuine)


def vouched_for(site: Site) -> set[str]:
    """How provenance and packages of a result stand, whose signature is proven."""
    (traced,) = json.loads(site.inv("results.trace", "result.json", "--json").stdout)
    standings = {link["name"]: link["state"] for link in traced["links"]}
    assert standings["signature"] == "verified"
    return {standings["provenance"], standings["packages"]}


@pytest.mark.full
def test_a_registry_that_has_another_image_than_its_papers_say_gives_none(
    shop: Site, registry: str, pushed: str, refused: Refused
) -> None:
    forged, tag = f"{registry}/cpu", f"{__version__}-docker"
    image, _ = ENGINE.daemon.sdk.images.build(fileobj=io.BytesIO(b"FROM sifmark:cpu\nENV FORGED=1\n"), rm=True)
    image.tag(forged, tag)
    ENGINE.daemon.sdk.images.push(forged, tag=tag)
    forget_all(registry)
    said = shop.inv("registry.pull", "cpu", "--registry", registry, check=False)
    assert said.returncode == 1 and "no attestations refer to it" in said.stderr
    assert attributes("sifmark:cpu") is None
    refused("Docker: pushed past sifmark", said.stderr)
    unsigned = shop.inv("image.sign", "cpu", "--registry", registry, "--key", "none.pem", check=False)
    assert unsigned.returncode == 2


def test_a_name_that_stands_for_another_image_is_not_pushed(shop: Site, registry: str, refused: Refused) -> None:
    ENGINE.daemon.sdk.images.build(
        fileobj=io.BytesIO(b"FROM sifmark:cpu\nENV FORGED=1\n"), tag="sifmark:lstm-cpu", rm=True
    )
    said = shop.inv("registry.push", "cpu", "--registry", registry, check=False)
    assert said.returncode == 1 and "sifmark:lstm-cpu is another image than sifmark:cpu" in said.stderr
    refused("Docker: another image under a workload's name, to be pushed", said.stderr)
    ENGINE.daemon.sdk.images.remove("sifmark:lstm-cpu")
    shop.inv("build", "cpu")


@pytest.mark.full
@NO_COSIGN
def test_attestations_of_another_are_not_signed(
    shop: Site, registry: str, pushed: str, tmp_path: Path, refused: Refused
) -> None:
    repository, key = f"{registry}/cpu", str(make_key(tmp_path, "site"))
    first, *others = listed_by_tag(repository, pushed)
    relist(repository, pushed, [put_forged(repository, first, added=1), *others])
    said = shop.inv("image.sign", "cpu", "--registry", registry, "--key", key, check=False)
    assert said.returncode == 1 and "its attestations there are not those that are here" in said.stderr
    refused("Docker: attestations that another has put there, to be signed", said.stderr)
    shop.inv("registry.push", "cpu", "--registry", registry)
    shop.inv("image.sign", "cpu", "--registry", registry, "--key", key)


@pytest.mark.full
@NO_COSIGN
def test_an_image_that_0_1_0_published_is_pulled_when_its_papers_are_signed(
    shop: Site, registry: str, pushed: str, tmp_path: Path, refused: Refused
) -> None:
    """By the same way whoever takes the attestations away could offer others: these have to be signed as well."""
    host, _, path = registry.partition("/")
    name, repository, key = f"{path}/cpu", f"{registry}/cpu", make_key(tmp_path, "site")
    site = shop.with_cache(tmp_path / "cache")
    fetch = ("registry.pull", "cpu", "--registry", registry, "--key", str(key.with_suffix(".pub")))
    layers, annotations = [], {}
    for entry in listed_by_tag(repository, pushed):
        _, manifest = connect(host).document(f"{name}/manifests/{entry['digest']}", (MANIFEST_MEDIA,))
        layers += [{**layer, "mediaType": "application/json"} for layer in manifest["layers"]]
        config, annotations = manifest["config"], manifest["annotations"]
    papers = {"schemaVersion": 2, "mediaType": MANIFEST_MEDIA, "artifactType": "application/vnd.sifmark.papers.v1"}
    content = compact_json({**papers, "config": config, "layers": layers, "annotations": annotations})
    connect(host).put_manifest(name, f"{pushed.replace(':', '-')}.papers", content, MANIFEST_MEDIA)
    relist(repository, pushed, [])
    signature.sign([f"{repository}@{pushed}"], key)
    forget_all(registry)
    said = site.inv(*fetch, check=False)
    assert said.returncode == 1 and "it is not signed" in said.stderr
    refused("Docker: papers as of 0.1.0, unsigned", said.stderr)
    signature.sign([f"{repository}@{sha256_bytes(content)}"], key)
    record = json.loads(site.inv(*fetch, "--json").stdout)
    assert (record["digest"], record["signed_by"]) == (pushed, key_id(key.with_suffix(".pub")))
    (listed,) = json.loads(site.inv("registry.list", "--registry", registry, "--json").stdout)["images"]
    assert (listed["digest"], listed["identity"]) == (pushed, record["identity"])
    stages = verdicts(site, f"{SMALL}-cpu", SIFMARK_KEYS=str(key.with_suffix(".pub")))
    outcome, reasons = stages["trust"]
    assert outcome == "passed" and "provenance: of this image; SBOM: sbom.cyclonedx.json" in reasons


def test_a_push_that_nobody_takes_leaves_no_name(shop: Site, refused: Refused) -> None:
    said = shop.inv("registry.push", "cpu", "--registry", "127.0.0.1:1/nowhere", check=False)
    assert said.returncode == 1 and "connection refused" in said.stderr and "docker login 127.0.0.1:1" in said.stderr
    assert attributes(f"127.0.0.1:1/nowhere/cpu:{__version__}-docker") is None
    refused("Docker: no registry", said.stderr)


def test_a_folder_takes_no_image_of_docker(shop: Site, tmp_path: Path) -> None:
    said = shop.inv("registry.push", "cpu", "--registry", str(tmp_path), check=False)
    assert said.returncode == 2 and "a folder has no room for images of Docker" in said.stderr
    assert shop.inv("registry.list", "--registry", str(tmp_path), check=False).returncode == 2
