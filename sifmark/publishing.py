"""The push and pull verbs: SIF files in a registry, as Apptainer itself pulls them (ORAS).

Each name of a recipe is a repository of its own, `PREFIX/<workload>-<recipe>`, so that `apptainer pull` gives a file
that runs its workload; all of them stand for one manifest and one blob. The tag is the version.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.build import alone, lock_of, write_facts
from sifmark.catalogue import free_space
from sifmark.console import Step, say, show, step
from sifmark.engines.apptainer import Apptainer, finished
from sifmark.engines.sif_signature import signed, signer
from sifmark.errors import RegistryError, SifmarkError, UsageError
from sifmark.files import beside, human_size, sha256_bytes
from sifmark.images import find_images, find_recipe, image_file, names_of
from sifmark.plan import BUILD_KEY, LABEL, PLATFORM, RECIPE, STAND_IN, is_loopback
from sifmark.registry import DIGEST, connect
from sifmark.settings import machine, settings
from sifmark.sif import Sif, read_sif

# As Apptainer writes and expects them: github.com/apptainer/apptainer, internal/pkg/client/oras.
_CONFIG_MEDIA = "application/vnd.sylabs.sif.config.v1+json"
_LAYER_MEDIA = "application/vnd.sylabs.sif.layer.v1.sif"
_MANIFEST_MEDIA = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = b"{}"
_TITLE = "org.opencontainers.image.title"
IDENTITY, SIGNED = f"{LABEL}.identity", f"{LABEL}.signed"  # annotations, beside the image's own labels
_LICENCE, _REDISTRIBUTABLE = f"{LABEL}.base-licence", f"{LABEL}.base-redistributable"


@dataclass(frozen=True)
class Place:
    """Where the images of a site are: `host/path` and a tag."""

    host: str
    path: str
    tag: str

    def repository(self, name: str) -> str:
        """The repository of an image's name."""
        return f"{self.path}/{name}"

    def reference(self, name: str) -> str:
        """What `apptainer pull oras://` takes."""
        return f"{self.host}/{self.repository(name)}:{self.tag}"


def place_of(prefix: str, tag: str) -> Place:
    """The place that options or settings name. Raises UsageError where there is none."""
    if not (chosen := prefix or settings().registry):
        raise UsageError("which registry?", "name it: --registry HOST/PATH, or registry in sifmark.toml")
    host, _, path = chosen.partition("/")
    platform = "" if machine() == "x86_64" else f"-{machine()}"
    return Place(host, path, tag or f"{__version__}{platform}")


def push(name: str, prefix: str, tag: str, as_json: bool) -> None:
    """Put a recipe's SIF into a registry, under each of its names. Raises SifmarkError."""
    recipe, place = find_recipe(name), place_of(prefix, tag)
    path = image_file(recipe)
    with alone(lock_of(recipe, Apptainer())):
        sif = read_sif(path)
        labels = sif.labels()
        _require_allowed(place.host, path, labels)
        with step(f"hash {path.name}"):
            made = finished(path)
        told = {**_stated(labels), IDENTITY: made.identity, SIGNED: str(signed(sif)).lower()}
        layer = {
            "mediaType": _LAYER_MEDIA,
            "digest": made.digest,
            "size": made.size,
            "annotations": {_TITLE: path.name},
        }
        manifest = _manifest(layer, told)
        registry, first = connect(place.host, patient=True), place.repository(recipe)
        with step(f"push {path.name}, {human_size(made.size)}, to {place.host}"):
            sent = registry.upload(first, made.digest, path)
            registry.upload(first, sha256_bytes(_CONFIG), _CONFIG)
            registry.tag(first, place.tag, manifest, _MANIFEST_MEDIA)
            for other in names_of(recipe):
                for digest in (made.digest, sha256_bytes(_CONFIG)):
                    registry.upload(place.repository(other), digest, path if digest == made.digest else _CONFIG, first)
                registry.tag(place.repository(other), place.tag, manifest, _MANIFEST_MEDIA)
    digest = sha256_bytes(manifest)
    if as_json:
        names = [place.reference(each) for each in (recipe, *names_of(recipe))]
        show(json.dumps({"digest": digest, "file": made.digest, "identity": made.identity, "names": names}, indent=2))
    else:
        show(f"{place.reference(recipe)}@{digest}")
        say(f"  {'sent' if sent else 'it was there already'}; also as {', '.join(names_of(recipe))}")


def pull(name: str, prefix: str, tag: str, as_json: bool, to_be_signed: bool = False) -> None:
    """Fetch the SIF of a name, hold it against its digests, labels and signature, and give it its names.

    Nothing has its final name before. Raises SifmarkError.
    """
    recipe, place = find_recipe(name), place_of(prefix, tag)
    asked = find_images(name)[0].name if name != recipe else recipe
    registry, repository = connect(place.host, patient=True), place.repository(asked)
    digest, document = registry.document(f"{repository}/manifests/{place.tag}", (_MANIFEST_MEDIA,))
    blob, size = _layer(document, place.reference(asked))
    target, tool = image_file(recipe), Apptainer()
    target.parent.mkdir(parents=True, exist_ok=True)
    if size > (free := free_space(target.parent)):
        raise SifmarkError(
            f"{place.reference(asked)} takes {human_size(size)}, {target.parent} has {human_size(free)} left",
            "free space (inv clean), or name another folder: dist in sifmark.toml",
        )
    with alone(lock_of(recipe, tool)):
        with beside(target) as draft:
            with step(f"pull {place.reference(asked)}, {human_size(size)}") as progress:
                registry.download(f"{repository}/blobs/{blob}", blob, draft, partial(_tell, progress, size))
            made = finished(draft)
            _require_announced(read_sif(draft), made.identity, recipe, document.get("annotations") or {})
            by = _signer(draft, to_be_signed or settings().require_signature)
            record = {"pulled": f"{place.reference(asked)}@{digest}", "signed_by": by}
            write_facts(recipe, tool, made, read_sif(draft).labels(), **record)
        names = tool.give_names(recipe)
    signature = f"signed by {by}" if by else "not signed by anyone who is trusted here"
    if as_json:
        told = {"digest": digest, "file": made.digest, "identity": made.identity, "signed_by": by, "path": str(target)}
        show(json.dumps(told, indent=2))
    else:
        show(f"{target}: {made.identity}, {signature}; also called {', '.join(names)}")


def _tell(progress: Step, size: int, arrived: int) -> None:
    progress.detail(f"{human_size(arrived)} of {human_size(size)}")


def _require_allowed(host: str, path: Path, labels: Mapping[str, str]) -> None:
    """Raise SifmarkError where an image may not leave: its base's licence, or a stand-in that others took for real."""
    if host in settings().private_registries:
        return
    remedy = f'if nobody outside may pull from {host}, say so in sifmark.toml: private_registries = ["{host}"]'
    if labels.get(STAND_IN) == "true" and not is_loopback(host):
        raise SifmarkError(f"{path.name} is built on a stand-in: it is for tests", remedy)
    if labels.get(STAND_IN) != "true" and labels.get(_REDISTRIBUTABLE) != "true":
        licence = labels.get(_LICENCE, "unknown")
        raise SifmarkError(f"{path.name}: its base may not be redistributed. Licence: {licence}", remedy)


def _stated(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that tell whoever looks at a registry what an image is."""
    return {key: value for key, value in labels.items() if key.startswith((f"{LABEL}.", "org.opencontainers.image."))}


def _manifest(layer: Mapping[str, Any], annotations: Mapping[str, str]) -> bytes:
    """The manifest of one SIF, as bytes: its digest is over them."""
    config = {"mediaType": _CONFIG_MEDIA, "digest": sha256_bytes(_CONFIG), "size": len(_CONFIG)}
    document = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST_MEDIA,
        "config": config,
        "layers": [{"mediaType": _LAYER_MEDIA, **layer}],
        "annotations": annotations,
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _layer(document: Mapping[str, Any], reference: str) -> tuple[str, int]:
    """Digest and bytes of the one SIF that a manifest names. Raises RegistryError for anything else."""
    try:
        (layer,) = document["layers"]
        digest, size = str(layer["digest"]), int(layer["size"])
        if layer["mediaType"] == _LAYER_MEDIA and DIGEST.fullmatch(digest) and size >= 0:
            return digest, size
    except (ValueError, KeyError, TypeError):
        pass
    raise RegistryError(f"{reference} is no SIF", "Docker images are pulled by `docker pull`")


def _require_announced(sif: Sif, identity: str, recipe: str, annotations: Mapping[str, str]) -> None:
    """Raise SifmarkError where what came is not the image that was asked for and announced."""
    labels = sif.labels()
    remedy = "do not run it; ask whoever pushed it"
    for label, wanted in ((RECIPE, recipe), (PLATFORM, machine()), (BUILD_KEY, annotations.get(BUILD_KEY))):
        if labels.get(label) != wanted:
            raise SifmarkError(f"what came has {label} {labels.get(label)}, not {wanted}", remedy)
    if identity != annotations.get(IDENTITY):
        raise SifmarkError(f"what came is {identity}, announced was {annotations.get(IDENTITY)}", remedy)


def _signer(path: Path, needed: bool) -> str | None:
    """Which trusted key has signed it. Raises Refuted where one is needed, or where its signature does not hold."""
    keys = settings().keys
    return signer(path, keys) if needed or (keys and signed(read_sif(path))) else None
