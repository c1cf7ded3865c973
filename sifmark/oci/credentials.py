"""Logins for registries, where `docker login` and `apptainer registry login` left them. Nothing of one is ever told."""

import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path

# Where Apptainer keeps what a login left, in the form of Docker's configuration; the latter in a folder that is named
# by APPTAINER_CONFIGDIR (seen with 1.4.5, which else writes Docker's own).
_APPTAINERS = ("docker-config.json", "config.json")


@dataclass(frozen=True)
class Login:
    """What is here for one registry."""

    # user and password, or the token that stands for both; None for everybody
    secret: tuple[str, str] | str | None = field(default=None, repr=False)
    unread: str = ""  # why one that is there is of no use


def login_for(host: str) -> Login:
    """Docker's for a host, else Apptainer's; one that does not read is as good as none."""
    from docker.auth import load_config
    from docker.errors import DockerException

    unread = ""
    for place in (None, *_apptainers()):
        try:
            with warnings.catch_warnings(action="ignore"):  # of a helper that is not there, told by `unread`
                found = load_config(config_path=place).resolve_authconfig(host) or {}
        except (DockerException, ValueError) as error:
            unread = str(error)[:200] or type(error).__name__
            continue
        told = {key.lower(): value for key, value in found.items()}  # helpers of logins have capitals
        if told.get("username") and told.get("password"):
            return Login((told["username"], told["password"]), unread)
        if told.get("identitytoken"):
            return Login(str(told["identitytoken"]), unread)
    return Login(None, unread)


def _apptainers() -> list[str]:
    folder = Path(os.environ.get("APPTAINER_CONFIGDIR", "~/.apptainer")).expanduser()
    return [str(folder / name) for name in _APPTAINERS if (folder / name).is_file()]
