"""The set-up of a machine as steps that stages request by name; a step that is done already takes a second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Setup:
    """A script of ci/setup."""

    name: str
    argv: tuple[str, ...]
    alone: bool = False  # nothing else runs meanwhile
    optional: bool = False  # it prints why it failed, and tests that need it are skipped
    exports: str = ""  # the variable for its output


def setups(names: Iterable[str], full: bool) -> list[Setup]:
    """Return the set-ups of these names, in the order in which they must run."""
    # Of the vendors' recipes the gate uses those whose bases differ most.
    bases = ("--all",) if full else ("cuda", "ipu")
    environments = ("py38", "torch_new", "torch_old", "tf_new", "tf_old", "py313")
    all_setups = [
        Setup("apptainer", ("ci/setup/apptainer",), alone=True),  # on Debian it upgrades libc6
        *(Setup(name, ("ci/setup/inside", name)) for name in environments),
        Setup("bases", ("ci/setup/bases", *bases)),
        Setup("docker", ("ci/setup/docker",), optional=True, exports="DOCKER_HOST"),
        Setup("cosign", ("ci/setup/cosign",), optional=True),
        Setup("chromium", ("ci/setup/chromium",), optional=True),
        Setup("suites", ("ci/setup/suites",), optional=True),
        Setup("consumers", ("ci/setup/consumers",), optional=True),
    ]
    wanted = set(names)
    return [setup for setup in all_setups if setup.name in wanted]
