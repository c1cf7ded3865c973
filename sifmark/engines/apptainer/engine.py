"""The Apptainer engine."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sifmark.core.console import say
from sifmark.core.files import beside, human_size, scratch, sweep
from sifmark.core.process import CommandError, run
from sifmark.core.settings import settings
from sifmark.engines import Evidence, Made, Seen, selection_files, selectors
from sifmark.engines.apptainer.build import build_flat, stages
from sifmark.engines.apptainer.inspection import SifEvidence
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

    def look(self, address: str) -> Seen | None:
        """The file's labels and size."""
        path = Path(address)
        if not path.exists():
            return None
        try:
            return Seen(read_sif(path).labels(), path.stat().st_size)
        except SifError:
            return Seen({}, path.stat().st_size)

    @contextmanager
    def building(self, plan: Plan, log: Path) -> Iterator[Made]:
        """Make the SIF of a plan from the converted base and our layers, beside its place."""
        target = image_file(plan.recipe.name)
        sweep(target.parent)
        with beside(target) as draft:
            build_flat(plan, draft, log)
            yield finished(draft)

    @contextmanager
    def rebuilt(self, plan: Plan, ours: Callable[..., str], folder: Path) -> Iterator[str]:
        """The fast build once more."""
        ours("build", plan.recipe.name)
        yield str(next(folder.glob(f"**/{plan.recipe.name}.{self.suffix}")))

    def stages(self, plan: Plan) -> dict[str, bool]:
        """The entries of the cache that a build takes."""
        return {kind: entry.seal() is not None for kind, entry in stages(plan).items()}

    def give_names(self, recipe: str) -> tuple[str, ...]:
        """Hard links; a name that is there is replaced in one step."""
        target = image_file(recipe)
        names = names_of(recipe)
        with scratch(target.parent, "names") as drafts:
            for path in map(image_file, names):
                if not (path.exists() and path.samefile(target)):
                    _link(target, drafts / path.name)
                    (drafts / path.name).replace(path)
        return names

    def forget(self, recipe: str) -> Iterable[str]:
        """Remove the recipe's file and the links to it."""
        for path in filter(Path.exists, map(image_file, (*names_of(recipe), recipe))):
            size = path.stat().st_size
            path.unlink()
            yield f"{path} ({human_size(size)})"

    def forget_stages(self) -> Iterable[str]:
        """They are entries of the cache."""
        return ()

    def command(self, address: str, verb: str, arguments: Sequence[str] = (), options: Sequence[str] = ()) -> list[str]:
        """`apptainer run|exec|test` with the flags that work for this user on this host."""
        return [NAME, "--quiet", verb, *user_flags(), *options, address, *arguments]

    def reach(self, access: Access) -> list[str]:
        """Apptainer's own flags of a vendor, or the device files by `--bind`; and what says which of them."""
        here = access.here()
        if not here:
            return []
        files = [] if access.apptainer else here
        seen = [*files, *(f"{path}:{path}:ro" for path in selection_files())]
        return [*access.apptainer, *(word for path in seen for word in ("--bind", path))]

    def at_home(self) -> list[str]:
        """Apptainer shows a run the user's folders by itself."""
        return []

    def handing_in(self, variable: str) -> list[str]:  # noqa: ARG002 - whichever it is
        """Apptainer lets a run see all variables by itself."""
        return []

    def sealed_off(self) -> list[str]:
        """Nothing of the user's, but which of the devices he may use."""
        chosen = [word for name, value in selectors().items() for word in ("--env", f"{name}={value}")]
        return ["--containall", "--cleanenv", *chosen]

    def evidence(self, address: str) -> SifEvidence:
        """The file."""
        return SifEvidence(Path(address))


def make() -> Apptainer:
    """The engine."""
    return Apptainer()


def finished(draft: Path) -> Made:
    """A SIF that is whole and may start: what to record of it."""
    draft.chmod(0o755)
    return made_of(draft, SifEvidence(draft))


def made_of(path: Path, image: Evidence) -> Made:
    """What to record of a file that is looked at anyway, so that it is hashed once."""
    return Made(path.stat().st_size, image.identity(), image.digest())


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
        say(f"  this file system has no hard links ({error.strerror}): {name.name} is a copy")
        shutil.copyfile(target, name)
        name.chmod(0o755)
