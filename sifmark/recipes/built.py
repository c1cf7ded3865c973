"""Wheels that are made here, of packages that their index has as a source only: `recipes/built/*.toml`.

A lock names such a wheel as any other, by its hash; it is the same for every Python and platform.
"""

from dataclasses import dataclass
from pathlib import Path

from sifmark.core import paths
from sifmark.core.errors import UsageError
from sifmark.core.schemas import read_toml


@dataclass(frozen=True)
class BuiltWheel:
    """A pure Python wheel: the source that it is made of, and what its build sees."""

    name: str
    version: str
    source: str  # `sha256:<hex>` of the archive in the index
    wheel: str  # `sha256:<hex>` of the wheel
    tools: tuple[str, ...]  # wheels that the build uses, as lines of a lock
    requires: tuple[str, ...]  # what the package needs beside a framework and NumPy
    environment: dict[str, str]  # during the build

    @property
    def requirement(self) -> str:
        """The source as a line of pip's requirements."""
        return f"{self.name}=={self.version} --hash={self.source}"


def read_built_wheel(path: Path) -> BuiltWheel:
    """Read and check a description. Raises UsageError naming file, key and remedy."""
    document = read_toml(path, "built-1.0")
    if document["name"] != path.stem:
        remedy = f"name the file {document['name']}.toml"
        raise UsageError(f"{path} describes {document['name']}", remedy, code="document-invalid")
    return BuiltWheel(
        **{key: document[key] for key in ("name", "version", "source", "wheel")},
        tools=tuple(document["tools"]),
        requires=tuple(document["requires"]),
        environment=dict(document.get("environment", {})),
    )


def load_built_wheel(name: str) -> BuiltWheel:
    """Read a description by its package's name. Raises UsageError."""
    return read_built_wheel(paths.BUILT / f"{name}.toml")
