"""An engine and an image that show what a test says, for everything that needs neither Apptainer nor Docker."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sifmark import __version__
from sifmark.attestations import provenance, sbom
from sifmark.attestations.packages import Package
from sifmark.core.environment import platform_name
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.engines import BuiltImage, CheckFailed, Engine, Forecast, ImageInfo, ImageInspection
from sifmark.engines.apptainer.build import assemble_sif
from sifmark.engines.apptainer.sif import Extent
from sifmark.engines.binds import Bind
from sifmark.recipes.hardware import Access
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, PLATFORM, RECIPE, STAND_IN, VERSION, WORKLOADS
from sifmark.recipes.names import names_of, workloads_of
from sifmark.recipes.plan import Plan, make_plan
from sifmark.recipes.recipe import load_recipe


def sha256(text: str) -> str:
    """Return a digest that depends on a text."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def labels_of(recipe: str, **changed: str) -> dict[str, str]:
    """Return labels as an image of a recipe on its pinned base has them."""
    return {
        RECIPE: recipe,
        WORKLOADS: ",".join(workloads_of(recipe)),
        PLATFORM: platform_name(),
        STAND_IN: "false",
        BUILD_KEY: sha256("build key"),
        VERSION: __version__,
        BASE_DIGEST: load_recipe(recipe).base.digests[platform_name()],
        **changed,
    }


def statement_of(labels: dict[str, str], subjects: dict[str, str]) -> bytes:
    """Return provenance that agrees with labels, as far as it is read."""
    base = {"digest": {"sha256": labels[BASE_DIGEST].removeprefix("sha256:")}}
    definition = {
        "externalParameters": {"recipe": labels[RECIPE]},
        "internalParameters": {"buildKey": labels[BUILD_KEY]},
        "resolvedDependencies": [base],
    }
    listed = [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()]
    predicate = {"buildDefinition": definition, "runDetails": {"builder": {"id": "a builder"}}}
    return json.dumps({"subject": listed, "predicate": predicate}).encode()


@dataclass
class FakeInspection:
    """An image that shows what a test says. What is a CheckFailed is raised."""

    labels: dict[str, str]
    workload: str | None = None
    signature_covers_attestations: bool = True
    runs: str = sha256("what runs")
    file: str = sha256("the file")
    signed_by: str | None = None  # the key's name
    subjects: dict[str, str] = field(default_factory=lambda: {"image": "0" * 64})
    statement: bytes | None = None  # None: one that agrees with the labels; empty: there is none
    documents: dict[str, bytes] = field(default_factory=lambda: {sbom.CYCLONEDX: b'{"components": [{}, {}]}'})
    start: str | CheckFailed = "starts our entrypoint"
    base: str | CheckFailed = "the base as it was"
    covered: str | CheckFailed = "all of it"
    differs: str | None = None  # in what, from whatever it is compared with
    files: tuple[tuple[str, str], ...] = (("drwxr-xr-x", "/sifmark"), ("-rw-r--r--", "/sifmark/run"))

    def identity(self) -> str:
        return self.runs

    def digest(self) -> str:
        return self.file

    def require_digest(self, recorded: str, signer: str | None) -> str:
        if recorded == self.file:
            return "as recorded"
        if signer:
            return f"signed since, by {signer}"
        raise CheckFailed("the file has changed", code="digest-mismatch")

    def require_covered(self) -> None:
        _raise_or_return(self.covered)

    def require_start(self) -> str:
        return _raise_or_return(self.start)

    def file_modes(self) -> Iterable[tuple[str, str]]:
        return self.files

    def signer(self, keys: Sequence[str]) -> str:
        if not keys:
            raise CheckFailed("no key is trusted here", code="no-trusted-key")
        if self.signed_by is None:
            raise CheckFailed("it is not signed", code="signature-missing")
        if self.signed_by not in keys:
            raise CheckFailed("by none of the keys", code="signature-untrusted")
        return self.signed_by

    def signed(self) -> bool:
        return self.signed_by is not None

    def provenance(self) -> tuple[bytes, dict[str, str]] | None:
        statement = statement_of(self.labels, self.subjects) if self.statement is None else self.statement
        return (statement, self.subjects) if statement else None

    def sboms(self) -> dict[str, bytes]:
        return self.documents

    def signatures(self) -> dict[str, bytes]:
        return {"signature-1": b"a signature"} if self.signed_by else {}

    def difference(self, other: str) -> str | None:
        return self.differs

    def require_base(self, plan: Plan) -> str:
        return _raise_or_return(self.base)


def _raise_or_return(answer: str | CheckFailed) -> str:
    if isinstance(answer, CheckFailed):
        raise answer
    return answer


class FakeEngine:
    """An engine whose images are in memory. `programs` are what it starts for `run`, `test` and `exec`."""

    name = "fake"
    suffix = "fake"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.images: dict[str, FakeInspection] = {}
        self.installed = True
        self.kept: dict[str, bool] = {"a stage": False}
        self.estimate = Forecast()
        self.programs: dict[str, list[str]] = {"run": ["true"], "test": ["true"], "exec": ["true"]}
        self.builds: list[str] = []
        self.inspected: list[str] = []  # addresses, as often as they were asked for
        self.commands: list[tuple[str, str, Sequence[str], Sequence[str]]] = []

    def add(self, name: str, **fields: Any) -> FakeInspection:
        """Let the image of a name or a recipe exist; `fields` are of its inspection, `labels` only what differs."""
        recipe = name.partition("-")[2] or name
        labels = labels_of(recipe, **fields.pop("labels", {}))
        self.images[self.address(name)] = FakeInspection(labels, **fields)
        return self.images[self.address(name)]

    @property
    def home(self) -> Path:
        return self.settings.dist

    def version(self) -> str | None:
        return "1.0" if self.installed else None

    def address(self, name: str) -> str:
        return f"fake:{name}"

    def pinned(self, address: str) -> str:
        return address

    def image_info(self, address: str) -> ImageInfo | None:
        image = self.images.get(address)
        return ImageInfo(image.labels, 1000, image.runs) if image is not None else None

    @contextmanager
    def build(self, plan: Plan, log: Path) -> Iterator[BuiltImage]:
        image = FakeInspection(plan.labels())
        yield BuiltImage(1000, image.runs, image.file)
        self.builds.append(plan.recipe.name)
        self.images[self.address(plan.recipe.name)] = image

    def stages(self, plan: Plan) -> dict[str, bool]:
        return self.kept

    def forecast(self, plan: Plan) -> Forecast:
        return self.estimate

    @contextmanager
    def rebuild(self, plan: Plan, run_command: Callable[..., str], folder: Path) -> Iterator[str]:
        yield self.address(plan.recipe.name)

    def tag_workloads(self, recipe: str) -> tuple[str, ...]:
        for name in names_of(recipe):
            self.images[self.address(name)] = self.images[self.address(recipe)]
        return names_of(recipe)

    def remove(self, recipe: str) -> Iterable[str]:
        for name in (*names_of(recipe), recipe):
            if self.images.pop(self.address(name), None):
                yield self.address(name)

    def prune_stages(self) -> Iterable[str]:
        return ()

    def command(self, address: str, verb: str, arguments: Sequence[str], options: Sequence[str]) -> list[str]:
        self.commands.append((address, verb, arguments, options))
        return self.programs[verb]

    def device_flags(self, access: Access) -> list[str]:
        return ["--device"]

    def home_flags(self) -> list[str]:
        return ["--home"]

    def bind_flags(self, binds: Sequence[Bind]) -> list[str]:
        return [f"--bind={bind.path}" for bind in binds]

    def env_flags(self, variable: str) -> list[str]:
        return [f"--env={variable}"]

    def name_flags(self, name: str) -> list[str]:
        return []

    def end_run(self, name: str) -> None:
        """Do nothing: nothing runs."""

    def isolation_flags(self, access: Access | None, *, variables: bool = False) -> list[str]:
        network = ["--with-network"] if access is not None and access.is_on_network() else []
        return ["--isolated", *network, *(["--with-variables"] if variables else [])]

    def inspect(self, address: str) -> FakeInspection:
        self.inspected.append(address)
        if address not in self.images:
            raise SifmarkError(f"there is no image {address}", code="image-not-built")
        return self.images[address]


def settings_for(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Let settings choose this engine by its name, as they choose those of the package, and return such settings."""
    module = ModuleType(f"sifmark.engines.{engine.name}.engine")
    vars(module)["make"] = lambda _settings: engine
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return replace(engine.settings, engine=engine.name)


def write_image(path: Path, recipe: str, settings: Settings) -> Plan:
    """Write a real SIF of a recipe on its pinned base, with all its documents but nothing in its file system."""
    plan = make_plan(recipe, replace(settings, bases="pinned"))
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = path.with_suffix(".stored")
    stored.write_bytes(b"a file system")
    system = Extent(stored, 0, stored.stat().st_size)
    attributes = {"labels": plan.labels(), "deffile": "x"}
    assemble_sif(plan, system, path, attributes, sbom.draft_documents(plan, [PACKAGE]), settings.builder)
    stored.unlink()
    return plan


PACKAGE = Package("pypi", "numpy", "2.0.0")
PROVENANCE = provenance.NAME
# mypy reads these: the fakes have all that the interfaces ask for.
_ENGINE: Callable[[Settings], Engine] = FakeEngine
_INSPECTION: Callable[[dict[str, str]], ImageInspection] = FakeInspection
