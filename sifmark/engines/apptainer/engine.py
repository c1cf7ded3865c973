"""The Apptainer engine."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sifmark.core.console import status
from sifmark.core.files import atomic_path, human_size, remove_stale_drafts, scratch_dir
from sifmark.core.process import CommandError, run
from sifmark.core.settings import settings
from sifmark.engines import BuiltImage, ImageInfo, ImageInspection, device_selection, device_selection_files
from sifmark.engines.apptainer.build import build_sif, stages
from sifmark.engines.apptainer.inspection import SifInspection
from sifmark.engines.apptainer.sif import SifError, read_sif
from sifmark.recipes.names import image_file, names_of
from sifmark.recipes.plan import Plan
from sifmark.recipes.recipe import Access

NAME = "apptainer"
MINIMUM = (1, 3)  # the first whose `sif` command and unprivileged mounts do all that we use
_ALL_CAPABILITIES = Path("/proc/sys/kernel/cap_last_cap")


class Apptainer:
    """Builds SIF files the fast way, and runs them as this host allows. An address is a file's path."""

    name = NAME
    suffix = "sif"

    @property
    def home(self) -> Path:
        """The folder of images."""
        return settings().dist

    def version(self) -> str | None:
        """Such as `1.4.5`; None where Apptainer is not installed."""
        try:
            found = re.search(r"\d+(\.\d+)+", run([NAME, "--version"]).output)
        except CommandError:
            return None
        return found.group() if found else None

    def address(self, name: str) -> str:
        """The file of a name in the folder of images."""
        return str(image_file(name))

    def image_info(self, address: str) -> ImageInfo | None:
        """The file's labels and size."""
        path = Path(address)
        if not path.exists():
            return None
        try:
            return ImageInfo(read_sif(path).labels(), path.stat().st_size)
        except SifError:
            return ImageInfo({}, path.stat().st_size)

    @contextmanager
    def build(self, plan: Plan, log: Path) -> Iterator[BuiltImage]:
        """Make the SIF of a plan from the converted base and our layers, beside its place."""
        target = image_file(plan.recipe.name)
        remove_stale_drafts(target.parent)
        with atomic_path(target) as draft:
            build_sif(plan, draft, log)
            yield verified_image(draft)

    @contextmanager
    def rebuild(self, plan: Plan, ours: Callable[..., str], folder: Path) -> Iterator[str]:
        """The fast build once more."""
        ours("build", plan.recipe.name)
        yield str(next(folder.glob(f"**/{plan.recipe.name}.{self.suffix}")))

    def stages(self, plan: Plan) -> dict[str, bool]:
        """The entries of the cache that a build takes."""
        return {kind: entry.seal() is not None for kind, entry in stages(plan).items()}

    def tag_workloads(self, recipe: str) -> tuple[str, ...]:
        """Hard links; a name that is there is replaced in one step."""
        target = image_file(recipe)
        names = names_of(recipe)
        with scratch_dir(target.parent, "names") as drafts:
            for path in map(image_file, names):
                if not (path.exists() and path.samefile(target)):
                    _link(target, drafts / path.name)
                    (drafts / path.name).replace(path)
        return names

    def remove(self, recipe: str) -> Iterable[str]:
        """Remove the recipe's file and the links to it."""
        for path in filter(Path.exists, map(image_file, (*names_of(recipe), recipe))):
            size = path.stat().st_size
            path.unlink()
            yield f"{path} ({human_size(size)})"

    def prune_stages(self) -> Iterable[str]:
        """They are entries of the cache."""
        return ()

    def command(self, address: str, verb: str, arguments: Sequence[str] = (), options: Sequence[str] = ()) -> list[str]:
        """`apptainer run|exec|test` with the flags that work for this user on this host."""
        return [NAME, "--quiet", verb, *user_flags(), *options, address, *arguments]

    def device_flags(self, access: Access) -> list[str]:
        """Apptainer's own flags of a vendor, or the device files by `--bind`; and what says which of them."""
        here = access.here()
        if not here:
            return []
        files = [] if access.apptainer else here
        seen = [*files, *(f"{path}:{path}:ro" for path in device_selection_files())]
        return [*access.apptainer, *(word for path in seen for word in ("--bind", path))]

    def home_flags(self) -> list[str]:
        """Apptainer shows a run the user's folders by itself."""
        return []

    def env_flags(self, variable: str) -> list[str]:  # noqa: ARG002 - whichever it is
        """Apptainer lets a run see all variables by itself."""
        return []

    def isolation_flags(self) -> list[str]:
        """Nothing of the user's, but which of the devices he may use."""
        chosen = [word for name, value in device_selection().items() for word in ("--env", f"{name}={value}")]
        return ["--containall", "--cleanenv", *chosen]

    def inspect(self, address: str) -> SifInspection:
        """The file."""
        return SifInspection(Path(address))


def make() -> Apptainer:
    """The engine."""
    return Apptainer()


def verified_image(draft: Path) -> BuiltImage:
    """A SIF that is whole and may start: what to record of it."""
    draft.chmod(0o755)
    return describe_image(draft, SifInspection(draft))


def describe_image(path: Path, image: ImageInspection) -> BuiltImage:
    """What to record of a file that is looked at anyway, so that it is hashed once."""
    return BuiltImage(path.stat().st_size, image.identity(), image.digest())


@cache
def user_flags() -> tuple[str, ...]:
    """A root that lacks a capability cannot ask for all of them, as Apptainer does: it needs a user namespace."""
    if os.geteuid() != 0:
        return ()
    status = Path("/proc/self/status").read_text()
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    every = (1 << (int(_ALL_CAPABILITIES.read_text()) + 1)) - 1
    return () if held is not None and int(held.group(1), 16) == every else ("--userns",)


def _link(target: Path, name: Path) -> None:
    try:
        os.link(target, name)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        status(f"  this file system has no hard links ({error.strerror}): {name.name} is a copy")
        shutil.copyfile(target, name)
        name.chmod(0o755)
