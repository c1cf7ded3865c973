"""The Apptainer engine."""

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sifmark.engines import Inspection
from sifmark.engines.flat import build_flat
from sifmark.errors import SifmarkError
from sifmark.plan import Plan
from sifmark.recipe import Access
from sifmark.run import CommandError, run

NAME = "apptainer"
MINIMUM = (1, 3)  # the first whose `sif` command and unprivileged mounts do all that we use
_ALL_CAPABILITIES = Path("/proc/sys/kernel/cap_last_cap")


class Apptainer:
    """Builds SIF files the fast way, and runs them as this host allows."""

    name = NAME

    def version(self) -> str | None:
        """Such as `1.4.5`; None where Apptainer is not installed."""
        try:
            found = re.search(r"\d+(\.\d+)+", run([NAME, "--version"]).output)
        except CommandError:
            return None
        return found.group() if found else None

    def build(self, plan: Plan, target: Path, log: Path) -> None:
        """Make the SIF of a plan from the converted base and our layers."""
        build_flat(plan, target, log)

    def command(self, image: Path, verb: str, arguments: Sequence[str] = (), options: Sequence[str] = ()) -> list[str]:
        """`apptainer run|exec|test` with the flags that work for this user on this host."""
        return [NAME, "--quiet", verb, *user_flags(), *options, str(image), *arguments]

    def reach(self, access: Access) -> list[str]:
        """Apptainer's own flags of a vendor, or the device files by `--bind`."""
        here = access.here()
        if access.apptainer or not here:
            return list(access.apptainer if here else ())
        return [word for path in here for word in ("--bind", path)]

    def inspect(self, image: Path) -> Inspection:
        """Ask Apptainer itself, through spython, which knows no list of apps."""
        attributes = _inspect(image)
        apps = run([NAME, "inspect", "--list-apps", image]).output.split()
        return Inspection(
            labels=dict(attributes.get("labels") or {}),
            apps=tuple(sorted(apps)),
            runscript=str(attributes.get("runscript") or ""),
            definition=str(attributes.get("deffile") or ""),
        )


@cache
def user_flags() -> tuple[str, ...]:
    """A root that lacks a capability cannot ask for all of them, as Apptainer does: it needs a user namespace."""
    if os.geteuid() != 0:
        return ()
    status = Path("/proc/self/status").read_text()
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    every = (1 << (int(_ALL_CAPABILITIES.read_text()) + 1)) - 1
    return () if held is not None and int(held.group(1), 16) == every else ("--userns",)


def _inspect(image: Path) -> dict[str, Any]:
    # spython takes a third of a second to import, and only this needs it.
    from spython.main import get_client

    try:
        answer = get_client(quiet=True).inspect(str(image), json=True, quiet=True)
        return dict(answer["attributes"])
    except (KeyError, TypeError, ValueError, OSError, SystemExit) as error:
        raise SifmarkError(f"Apptainer cannot inspect {image}", f"see why: apptainer inspect --all {image}") from error
