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
from sifmark.core.files import sha256_json
from sifmark.engines import CheckFailed
from sifmark.engines.docker import signature
from sifmark.engines.docker.attestations import IMAGE, attestation_folder
from sifmark.engines.docker.client import attributes, docker_client, stream_of, translated_errors
from sifmark.recipes import render
from sifmark.recipes.plan import RECIPE, Plan

WORKLOAD = "SCIF_APPNAME"  # the variable by which a name tells the entrypoint its workload, as SCIF has it
# What differs between images of the same content: where a build stood, not what runs.
_OWN = ("Hostname", "Domainname", "Image")
_OURS = (render.SITE, render.CODE, render.APPS)
_LAYERS = (render.SITE_LAYER, render.CODE_LAYER)


class DockerInspection:
    """One local image. Raises SifmarkError where there is none."""

    signature_covers_attestations = (
        False  # they lie beside it, and inv pull holds them against a signature of their own
    )

    def __init__(self, address: str, base_of: Callable[[Plan], str]) -> None:
        self._base_of = base_of
        found = attributes(address)
        if found is None:
            raise SifmarkError(f"Docker has no image {address}", "build it: inv build NAME --engine docker")
        self.identifier, self.size = str(found["Id"]), int(found["Size"])
        self.config: dict[str, Any] = found["Config"]
        self.layers: list[str] = found["RootFS"]["Layers"]
        self.labels = dict(self.config.get("Labels") or {})
        self.environment = dict(variable.partition("=")[::2] for variable in self.config.get("Env") or ())
        self.workload = self.environment.pop(WORKLOAD, None)
        self.address = address
        self.references = list(map(_with_host, found.get("RepoDigests") or ()))  # by digest, where it is published
        self._parent = str(found.get("Parent") or "")

    def identity(self) -> str:
        """Over layers and all of the configuration but a name's variable: all names of an image have the same."""
        told = {key: value for key, value in self.config.items() if key not in _OWN and value}
        return sha256_json({**told, "Env": self.environment, "layers": self.layers})

    def digest(self) -> str:
        """Its identifier; a name of a workload has one of its own."""
        return self.identifier

    def require_digest(self, recorded: str, signer: str | None) -> str:  # noqa: ARG002 - what is signed is not here
        """A workload's name adds a variable, and has an identifier of its own."""
        if self.identifier == recorded:
            return "identity and identifier as recorded"
        if self.workload and self.address.endswith(f":{self.workload}-{self.labels.get(RECIPE)}"):
            return f"identity as recorded; this name adds {WORKLOAD}={self.workload} and nothing else"
        raise CheckFailed("what would run is as recorded, but it is another image than was built", REBUILD_REMEDY)

    def require_start(self) -> str:
        """Entrypoint, and the variables that hold in every run."""
        if self.config.get("Entrypoint") != [f"/{render.CODE}/run"]:
            raise CheckFailed(f"it starts {self.config.get('Entrypoint')}, not our entrypoint", REBUILD_REMEDY)
        if lost := [key for key, value in render.FIXED_ENVIRONMENT.items() if self.environment.get(key) != value]:
            raise CheckFailed(f"its environment lacks {', '.join(lost)}", REBUILD_REMEDY)
        return f"{len(self.labels)} labels, starts our entrypoint"

    def file_modes(self) -> Iterator[tuple[str, str]]:
        """Our folders, by way of a container that is never started."""
        with translated_errors():
            container = docker_client().containers.create(self.identifier)
        try:
            for folder in _OURS:
                with translated_errors():
                    blocks, _ = container.get_archive(f"/{folder}")
                with tarfile.open(fileobj=stream_of(blocks), mode="r|") as archive:
                    for member in archive:
                        kind = stat.S_IFDIR if member.isdir() else stat.S_IFLNK if member.issym() else stat.S_IFREG
                        yield stat.filemode(kind | member.mode), f"/{member.name}"
        finally:
            container.remove(force=True)

    def signer(self, keys: Sequence[str]) -> str:
        """By the signatures that are beside it in a registry."""
        reference, *others = self._published()
        for other in others:
            with suppress(SifmarkError):
                return signature.signer(other, keys)
        return signature.signer(reference, keys)

    def signed(self) -> bool:
        """An image in the engine's store carries no signature; the one that was pushed or pulled may have one."""
        try:
            return any(map(signature.signed, self._published()))
        except SifmarkError as reason:
            status(f"  no signature was looked for: {reason.cause}")
            return False

    def _published(self) -> list[str]:
        """Where it is in registries, by digest. Raises Refuted where it is in none.

        A workload's name is an image on top, which is in none itself; it counts where it is the same but for the name.
        """
        found = self.references
        if not found and self._parent:
            below = DockerInspection(self._parent, self._base_of)
            found = below.references if below.identity() == self.identity() else []
        if not found:
            raise CheckFailed(
                "it is in no registry, where its signature would be",
                "inv push, then inv sign, both with --engine docker",
            )
        return found

    def provenance(self) -> tuple[bytes, dict[str, str]] | None:
        """What its build wrote beside its record."""
        found = self.papers().get(provenance.NAME)
        return None if found is None else (found, {IMAGE: self.identity().removeprefix("sha256:")})

    def sboms(self) -> dict[str, bytes]:
        """What its build wrote beside its record."""
        return {name: content for name, content in self.papers().items() if name != provenance.NAME}

    def papers(self) -> dict[str, bytes]:
        """All that its build wrote beside its record, by name."""
        paths = (self._papers / name for name in (sbom.SPDX, sbom.CYCLONEDX, provenance.NAME))
        return {path.name: path.read_bytes() for path in paths if path.is_file()}

    @property
    def _papers(self) -> Path:
        return attestation_folder(Path(self.labels.get(RECIPE, "none")).name)

    def difference(self, again: str) -> str | None:
        """Layer by layer, then field by field of the configuration; identifiers differ, since the engine dates them."""
        other = DockerInspection(again, self._base_of)
        for number, (here, there) in enumerate(zip_longest(self.layers, other.layers), start=1):
            if here != there:
                return f"layer {number} of {len(self.layers)} is {here} and {there}"
        if self.identity() != other.identity():
            fields = [key for key in self.config if key not in _OWN and self.config[key] != other.config.get(key)]
            return f"the layers are the same, the configuration differs in {', '.join(fields)}"
        return None

    def require_base(self, plan: Plan) -> str:
        """Its first layers are the base's, byte for byte, and we add two."""
        base = attributes(self._base_of(plan))
        if base is None:
            return "base: not in the engine's store, its layers were not compared"
        layers = base["RootFS"]["Layers"]
        if self.layers[: len(layers)] != layers:
            raise CheckFailed("its first layers are not the base's", REBUILD_REMEDY)
        if len(self.layers) != len(layers) + len(_LAYERS):
            raise CheckFailed(
                f"it adds {len(self.layers) - len(layers)} layers to the base, not {len(_LAYERS)}", REBUILD_REMEDY
            )
        return f"{len(layers)} layers of the base, all as they were, and {len(_LAYERS)} of ours"


def _with_host(reference: str) -> str:
    """The engine leaves docker.io out: `user/cpu@sha256:...`."""
    from docker.auth import resolve_repository_name

    return "/".join(resolve_repository_name(reference))
