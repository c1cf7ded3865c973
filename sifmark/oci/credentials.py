"""Logins for registries, from the files of `docker login` and `apptainer registry login`. They are never shown."""

import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path

# Apptainer's files of logins, in the format of Docker's configuration. It uses the second one in a folder that
# APPTAINER_CONFIGDIR names (seen with 1.4.5, which otherwise writes to Docker's own file).
_APPTAINER_FILES = ("docker-config.json", "config.json")


@dataclass(frozen=True)
class Login:
    """The login for one registry, if there is one."""

    # user and password, or an identity token in their place; None for anonymous access
    secret: tuple[str, str] | str | None = field(default=None, repr=False)
    unread: str = ""  # why a file of logins could not be used


def login_for(host: str) -> Login:
    """Return Docker's login for a host, or else Apptainer's. A file that cannot be read counts as empty."""
    from docker.auth import load_config
    from docker.errors import DockerException

    unread = ""
    for path in (None, *_apptainer_files()):  # None: Docker's own
        try:
            with warnings.catch_warnings(action="ignore"):  # of a missing helper, which `unread` reports
                entry = load_config(config_path=path).resolve_authconfig(host) or {}
        except (DockerException, ValueError) as error:
            unread = str(error)[:200] or type(error).__name__
            continue
        fields = {key.lower(): value for key, value in entry.items()}  # credential helpers use capitals
        if fields.get("username") and fields.get("password"):
            return Login((fields["username"], fields["password"]), unread)
        if fields.get("identitytoken"):
            return Login(str(fields["identitytoken"]), unread)
    return Login(None, unread)


def _apptainer_files() -> list[str]:
    folder = Path(os.environ.get("APPTAINER_CONFIGDIR", "~/.apptainer")).expanduser()
    return [str(folder / name) for name in _APPTAINER_FILES if (folder / name).is_file()]
