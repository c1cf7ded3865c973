"""What a Docker image shows of itself."""

import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sifmark.attestations import provenance, sbom
from sifmark.core.console import status
from sifmark.core.errors import REBUILD_REMEDY, SifmarkError
from sifmark.core.files import compact_json, human_size, sha256_json
from sifmark.engines import CheckFailed
from sifmark.engines.docker import signature
from sifmark.engines.docker.attestations import IMAGE, attestation_folder
from sifmark.engines.docker.client import DockerDaemon, stream_of, translated_errors
from sifmark.recipes import render
from sifmark.recipes.labels import RECIPE
from sifmark.recipes.plan import Plan
from sifmark.recipes.recipe import recipe_names

# The variable that tells the entrypoint its workload, as in SCIF. An image name adds it.
WORKLOAD = "SCIF_APPNAME"
# Fields of the configuration that describe where a build was done, not what runs.
_BUILD_FIELDS = ("Hostname", "Domainname", "Image")
# An engine takes minutes to start, and to remove, what has a configuration of megabytes.
_LONGEST_CONFIGURATION = 1 << 20  # bytes
_OUR_FOLDERS = (render.SITE, render.CODE, render.APPS)
_OUR_LAYERS = (render.SITE_LAYER, render.CODE_LAYER)


class DockerInspection:
    """The inspection of one local image. Raises SifmarkError if there is no such image, or no engine can take it."""

    signature_covers_attestations = False  # they are outside the image, with signatures of their own

    def __init__(self, address: str, daemon: DockerDaemon, base_of: Callable[[Plan], str], cache: Path) -> None:
        self._daemon, self._base_of, self._cache = daemon, base_of, cache
        attributes = daemon.attributes(address)
        if attributes is None:
            remedy = "build it: sifmark build NAME --engine docker"
            raise SifmarkError(f"Docker has no image {address}", remedy, code="image-not-built")
        self.identifier, self.size = str(attributes["Id"]), int(attributes["Size"])
        self.config: dict[str, Any] = attributes["Config"] or {}
        if len(compact_json(self.config)) > _LONGEST_CONFIGURATION:
            cause = f"the configuration of {address} is longer than {human_size(_LONGEST_CONFIGURATION)}"
            raise SifmarkError(cause, f"remove it: docker image rm {address}", code="not-sifmark-image")
        self.layers: list[str] = attributes["RootFS"].get("Layers") or []
        self.labels = dict(self.config.get("Labels") or {})
        self.environment = dict(variable.partition("=")[::2] for variable in self.config.get("Env") or ())
        self.workload = self.environment.pop(WORKLOAD, None)
        self.address = address
        # References by digest in the registries where it is published.
        self.references = list(map(_with_host, attributes.get("RepoDigests") or ()))
        self._parent = str(attributes.get("Parent") or "")

    def identity(self) -> str:
        """Return the hash over layers and configuration. All names of an image have the same."""
        config = {key: value for key, value in self.config.items() if key not in _BUILD_FIELDS and value}
        return sha256_json({**config, "Env": self.environment, "layers": self.layers})

    def digest(self) -> str:
        """Return the image's identifier; each name of a workload has another."""
        return self.identifier

    def require_covered(self) -> None:
        """Do nothing: Docker finds everything of an image by its digest."""

    def require_digest(self, recorded: str, signer: str | None) -> str:  # noqa: ARG002 - signatures are in registries
        """Accept another identifier only of a workload's name, which adds a variable. Raises CheckFailed."""
        if self.identifier == recorded:
            return "identity and identifier as recorded"
        if self.workload:
            return f"identity as recorded; this name adds {WORKLOAD}={self.workload} and nothing else"
        cause = "what would run is as recorded, but it is another image than was built"
        raise CheckFailed(cause, REBUILD_REMEDY, code="digest-mismatch")

    def require_start(self) -> str:
        """Check the entrypoint, and the variables that every run has. Raises CheckFailed."""
        if self.config.get("Entrypoint") != [f"/{render.CODE}/run"]:
            cause = f"it starts {self.config.get('Entrypoint')!s:.100}, not our entrypoint"
            raise CheckFailed(cause, REBUILD_REMEDY, code="image-altered")
        if missing := [key for key, value in render.FIXED_ENVIRONMENT.items() if self.environment.get(key) != value]:
            cause = f"its environment lacks {', '.join(missing)}"
            raise CheckFailed(cause, REBUILD_REMEDY, code="image-altered")
        return f"{len(self.labels)} labels, starts our entrypoint"

    def file_modes(self) -> Iterator[tuple[str, str]]:
        """Yield mode and name of each file in our folders, read through a container that is never started."""
        with self._daemon.container(self.identifier) as container:
            for folder in _OUR_FOLDERS:
                with translated_errors():
                    blocks, _ = container.get_archive(f"/{folder}")
                with tarfile.open(fileobj=stream_of(blocks), mode="r|") as archive:
                    for member in archive:
                        kind = stat.S_IFDIR if member.isdir() else stat.S_IFLNK if member.issym() else stat.S_IFREG
                        yield stat.filemode(kind | member.mode), f"/{member.name}"

    def signer(self, keys: Sequence[str]) -> str:
        """Return the trusted key of a signature that is beside the image in a registry. Raises CheckFailed."""
        reference, *others = self._published()
        for other in others:
            with suppress(SifmarkError):
                return signature.signer(other, keys)
        return signature.signer(reference, keys)

    def signed(self) -> bool:
        """Return whether a registry where the image is published has a signature of it."""
        try:
            return any(map(signature.signed, self._published()))
        except SifmarkError as reason:
            status(f"  no signature was looked for: {reason.cause}")
            return False

    def _published(self) -> list[str]:
        """Return where the image is in registries, by digest. Raises CheckFailed if it is in none.

        A workload's name is an image on top of a recipe's, which is in no registry itself. The recipe's counts if only
        the name differs.
        """
        references = self.references
        if not references and self._parent:
            parent = DockerInspection(self._parent, self._daemon, self._base_of, self._cache)
            references = parent.references if parent.identity() == self.identity() else []
        if not references:
            raise CheckFailed(
                "it is in no registry, where its signature would be",
                "sifmark registry.push, then sifmark image.sign, both with --engine docker",
                code="signature-missing",
            )
        return references

    def provenance(self) -> tuple[bytes, dict[str, str]] | None:
        """Return the statement that its build wrote beside its record, and the image as its subject."""
        statement = self.attestations().get(provenance.NAME)
        return None if statement is None else (statement, {IMAGE: self.identity().removeprefix("sha256:")})

    def sboms(self) -> dict[str, bytes]:
        """Return the SBOMs that its build wrote beside its record, by name."""
        return {name: content for name, content in self.attestations().items() if name != provenance.NAME}

    def attestations(self) -> dict[str, bytes]:
        """Return all attestations that its build wrote beside its record, by name."""
        recipe = self.labels.get(RECIPE, "")
        if recipe not in recipe_names():  # it would be part of a path
            return {}
        folder = attestation_folder(recipe, self._cache)
        paths = (folder / name for name in (sbom.SPDX, sbom.CYCLONEDX, provenance.NAME))
        return {path.name: path.read_bytes() for path in paths if path.is_file()}

    def signatures(self) -> dict[str, bytes]:
        """Return none: they are in registries, beside the image."""
        return {}

    def difference(self, other: str) -> str | None:
        """Compare layers, then fields of the configuration. Identifiers differ anyway: the engine dates them."""
        another = DockerInspection(other, self._daemon, self._base_of, self._cache)
        for number, (ours, theirs) in enumerate(zip_longest(self.layers, another.layers), start=1):
            if ours != theirs:
                return f"layer {number} of {len(self.layers)} is {ours} and {theirs}"
        if self.identity() != another.identity():
            fields = [key for key in self.config if key not in _BUILD_FIELDS]
            different = [key for key in fields if self.config[key] != another.config.get(key)]
            return f"the layers are the same, the configuration differs in {', '.join(different)}"
        return None

    def require_base(self, plan: Plan) -> str:
        """Check that the first layers are the base's, byte for byte, and that we add two. Raises CheckFailed."""
        base = self._daemon.attributes(self._base_of(plan))
        if base is None:
            return "base: not in the engine's store, its layers were not compared"
        layers = base["RootFS"]["Layers"]
        if self.layers[: len(layers)] != layers:
            raise CheckFailed("its first layers are not the base's", REBUILD_REMEDY, code="image-altered")
        if len(self.layers) != len(layers) + len(_OUR_LAYERS):
            cause = f"it adds {len(self.layers) - len(layers)} layers to the base, not {len(_OUR_LAYERS)}"
            raise CheckFailed(cause, REBUILD_REMEDY, code="image-altered")
        return f"{len(layers)} unchanged layers of the base, and {len(_OUR_LAYERS)} of ours"


def _with_host(reference: str) -> str:
    """Add docker.io, which the engine leaves out: `user/cpu@sha256:...`."""
    from docker.auth import resolve_repository_name

    return "/".join(resolve_repository_name(reference))
