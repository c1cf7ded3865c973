"""The Apptainer engine."""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sifmark.core.console import status
from sifmark.core.files import atomic_path, human_size, is_full, remove_stale_drafts, scratch_dir
from sifmark.core.process import CommandError, run
from sifmark.core.settings import Settings
from sifmark.engines import (
    APPTAINER,
    NOBODY,
    BuiltImage,
    Forecast,
    ImageInfo,
    ImageInspection,
    device_selection,
    device_selection_files,
)
from sifmark.engines.apptainer.build import build_sif, cache_entries
from sifmark.engines.apptainer.forecast import forecast_build
from sifmark.engines.apptainer.inspection import SifInspection
from sifmark.engines.apptainer.sif import Fingerprints, SifError, read_sif
from sifmark.engines.binds import Bind
from sifmark.recipes.hardware import Access
from sifmark.recipes.names import names_of
from sifmark.recipes.plan import Plan

MINIMUM = (1, 3)  # the first whose `sif` command and unprivileged mounts do all that we use
_CAP_SYS_ADMIN = 1 << 21  # linux/capability.h
_OTHER_USER = "--security=uid:"
_SEPARATORS = set(',:"\\\n')  # what `--bind` takes for more than a part of a path
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")


class Apptainer:
    """Builds SIF files the fast way, and runs them as this host allows. An address is a file's path."""

    name = APPTAINER
    suffix = "sif"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def home(self) -> Path:
        """The folder of images."""
        return self.settings.dist

    def version(self) -> str | None:
        """Return the version, such as `1.4.5`, or None if Apptainer is not installed."""
        try:
            match = re.search(r"\d+(\.\d+)+", run([APPTAINER, "--version"]).output)
        except CommandError:
            return None
        return match.group() if match else None

    def address(self, name: str) -> str:
        """Return the file of a name in the folder of images. The names of a recipe are links to one file."""
        return str(self._file(name))

    def pinned(self, address: str) -> str:
        """Return the path: whoever runs a file compares its state with that before the look at it."""
        return address

    def image_info(self, address: str) -> ImageInfo | None:
        """Return the file's labels and size, or None if there is no such file."""
        path = Path(address)
        if not path.exists():
            return None
        status = path.stat()
        content = f"{status.st_dev}:{status.st_ino}"
        try:
            return ImageInfo(read_sif(path).labels(), status.st_size, content)
        except SifError:
            return ImageInfo({}, status.st_size, content)

    @contextmanager
    def build(self, plan: Plan, log: Path) -> Iterator[BuiltImage]:
        """Make the SIF of a plan from the converted base and our layers, as a draft beside its final place."""
        target = self._file(plan.recipe.name)
        remove_stale_drafts(target.parent)
        with atomic_path(target) as draft:
            hashes = build_sif(plan, draft, log, self.settings)
            yield written_image(draft, hashes)

    @contextmanager
    def rebuild(self, plan: Plan, run_command: Callable[..., str], folder: Path) -> Iterator[str]:
        """Do the fast build once more."""
        run_command("build", plan.recipe.name)
        yield str(next(folder.glob(f"**/{plan.recipe.name}.{self.suffix}")))

    def stages(self, plan: Plan) -> dict[str, bool]:
        """Return the entries of the cache that a build uses, and whether each is there."""
        return {kind: entry.checksum() is not None for kind, entry in cache_entries(plan, self.settings).items()}

    def forecast(self, plan: Plan) -> Forecast:
        """Estimate what a build would take in the cache, the folder of images and time."""
        return forecast_build(plan, self.settings)

    def tag_workloads(self, recipe: str) -> tuple[str, ...]:
        """Make hard links. A name that exists is replaced in one step."""
        target = self._file(recipe)
        names = names_of(recipe)
        with scratch_dir(target.parent, "names") as drafts:
            for path in map(self._file, names):
                if not (path.exists() and path.samefile(target)):
                    _link(target, drafts / path.name)
                    (drafts / path.name).replace(path)
        return names

    def remove(self, recipe: str) -> Iterable[str]:
        """Remove the recipe's file and the links to it."""
        file, links = self._file(recipe), [path for path in map(self._file, names_of(recipe)) if path.exists()]
        size = file.stat().st_size if file.exists() else 0
        for path in links:
            path.unlink()
        file.unlink(missing_ok=True)
        if size or links:
            yield f"{file} and {len(links)} names of it ({human_size(size)})"

    def prune_stages(self) -> Iterable[str]:
        """Remove nothing: they are entries of the cache."""
        return ()

    def command(self, address: str, verb: str, arguments: Sequence[str] = (), options: Sequence[str] = ()) -> list[str]:
        """Return `apptainer run|exec|test` with the flags that work for this user on this host."""
        own = () if any(word.startswith(_OTHER_USER) for word in options) else user_flags()
        return [APPTAINER, "--quiet", verb, *own, *options, address, *arguments]

    def device_flags(self, access: Access) -> list[str]:
        """Return Apptainer's own flags of a vendor, or `--bind` of the device files, and of what selects them."""
        devices = access.existing_files()
        if not devices:
            return []
        files = [] if access.apptainer else [word for path in devices for word in ("--bind", path)]
        return [*access.apptainer, *files, *self.bind_flags([Bind(Path(path)) for path in device_selection_files()])]

    def home_flags(self) -> list[str]:
        """Return nothing: Apptainer shows a run the user's folders anyway."""
        return []

    def bind_flags(self, binds: Sequence[Bind]) -> list[str]:
        """Return `--bind`, or `--mount` where a path has a character that `--bind` takes for a separator."""
        return [word for bind in binds for word in _bind_words(bind)]

    def env_flags(self, variable: str) -> list[str]:  # noqa: ARG002 - for every variable
        """Return nothing: Apptainer shows a run all variables anyway."""
        return []

    def name_flags(self, name: str) -> list[str]:  # noqa: ARG002 - for every name
        """Return nothing: a run is a process that ends with its parent."""
        return []

    def end_run(self, name: str) -> None:
        """Do nothing: see `name_flags`."""

    def isolation_flags(self, access: Access | None, *, variables: bool = False) -> list[str]:
        """Return the options that keep everything of the user out, except for the selection of devices.

        Root starts the image as a user without rights: files of the host that Apptainer shows, such as those in /proc,
        are root's to write.
        """
        network = [] if access is not None and access.is_on_network() else ["--net", "--network=none"]
        contained = ["--contain", "--pid", "--ipc"] if variables else ["--containall", "--cleanenv"]
        selection = [word for name, value in device_selection().items() for word in ("--env", f"{name}={value}")]
        return [*contained, *_unprivileged(access), *network, *selection]

    def inspect(self, address: str) -> SifInspection:
        """Inspect a file. Raises SifmarkError if it is no SIF, or has no labels."""
        return SifInspection(Path(address), self.settings)

    def _file(self, name: str) -> Path:
        return self.settings.dist / f"{name}.{self.suffix}"


def make(settings: Settings) -> Apptainer:
    """Return the engine."""
    return Apptainer(settings)


def written_image(draft: Path, hashes: Fingerprints) -> BuiltImage:
    """Make a SIF that was just written executable, check its table and labels, and return what to record of it."""
    draft.chmod(0o755)
    read_sif(draft).labels()
    return BuiltImage(draft.stat().st_size, hashes.identity, hashes.digest)


def describe_image(path: Path, inspection: ImageInspection) -> BuiltImage:
    """Return what to record of a file that is inspected anyway, so that it is hashed once."""
    return BuiltImage(path.stat().st_size, inspection.identity(), inspection.digest())


@cache
def user_flags() -> tuple[str, ...]:
    """Return the flags that Apptainer needs for this user.

    A root that lacks a capability cannot request all of them, as Apptainer does: it needs a user namespace.
    """
    if os.geteuid() != 0:
        return ()
    everything = (1 << (int(_LAST_CAPABILITY.read_text()) + 1)) - 1
    return () if _capabilities() == everything else ("--userns",)


def _unprivileged(access: Access | None) -> list[str]:
    """Return the options by which root runs an image without its rights; none for other users, who have none."""
    if os.geteuid() != 0:
        return []
    if not _capabilities() & _CAP_SYS_ADMIN:  # root of a container, say, who cannot start it as another user
        return ["--no-privs"]  # beside `user_flags`
    groups = ":".join(map(str, (NOBODY, *(access.groups() if access else ()))))
    return [f"{_OTHER_USER}{NOBODY}", f"--security=gid:{groups}"]


def _capabilities() -> int:
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(match[1], 16) if match else 0


def _bind_words(bind: Bind) -> tuple[str, str]:
    path, target = str(bind.path), str(bind.target)
    if not _SEPARATORS & {*path, *target}:
        if not bind.writable:
            return "--bind", f"{path}:{target}:ro"
        return "--bind", path if path == target else f"{path}:{target}"
    source, destination = (text.replace('"', '""') for text in (path, target))
    options = f'type=bind,"source={source}","destination={destination}"'
    return "--mount", options if bind.writable else f"{options},ro"


def _link(target: Path, name: Path) -> None:
    """Make a hard link, or a copy if the file system has no hard links."""
    try:
        os.link(target, name)
    except OSError as error:
        if is_full(error):
            raise
        status(f"  this file system has no hard links ({error.strerror}): {name.name} is a copy")
        shutil.copyfile(target, name)
        name.chmod(0o755)
