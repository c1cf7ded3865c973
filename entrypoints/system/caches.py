"""Where compilers keep what they made: a container without folders of the host has little room in its own.

`apptainer run --containall` gives /tmp and the home folder 64 MiB together, unless its administrator chose another size
(`sessiondir max size`, https://apptainer.org/docs/admin/latest/configfiles.html). Compiled code of a large model may
fill them, and then the run would fail.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Callable, Mapping, Optional, Sequence

from entrypoints.system.facts import MIB

ROOM = 512.0  # MiB that caches of a model may take: 64 were too few
# Folders of caches, by the variables that name them: of Inductor, of Triton, and of MIOpen, which has two.
FOLDERS = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "MIOPEN_USER_DB_PATH": "miopen",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen",
}
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the last one, since it takes memory
FreeMib = Callable[[Path], Optional[float]]


def free_mib(folder: Path) -> float | None:
    """Return the free space of a folder in MiB, or None if nothing can be written there."""
    if not os.access(str(folder), os.W_OK | os.X_OK):
        return None
    return shutil.disk_usage(str(folder)).free / MIB


def moved(environment: Mapping[str, str], free: FreeMib = free_mib) -> dict[str, str]:
    """Return the variables that move caches to where they have room; nothing if they have it where they are.

    What the user chose stays. If there is room nowhere, the caches go where there is most of it.
    """
    temporary, home = Path(tempfile.gettempdir()), Path(environment.get("HOME") or "/")
    if all((free(folder) or 0.0) >= ROOM for folder in (temporary, home)):
        return {}
    place = roomiest([temporary, home, Path("/var/tmp"), Path.cwd(), Path(SHARED_MEMORY)], free)  # noqa: S108
    if place is None:
        return {}
    own = place / f"sifmark-caches-{os.getuid()}"
    return {variable: str(own / name) for variable, name in FOLDERS.items() if variable not in environment}


def roomiest(folders: Sequence[Path], free: FreeMib) -> Path | None:
    """Return the first folder with room, otherwise the one with most; None if nothing can be written anywhere."""
    spaces = [(folder, space) for folder, space in ((folder, free(folder)) for folder in folders) if space is not None]
    enough = next((folder for folder, space in spaces if space >= ROOM), None)
    return enough or max(spaces, key=lambda each: each[1], default=(None, 0.0))[0]
