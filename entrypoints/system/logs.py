"""Where Intel's software for Gaudi writes its logs: it aborts a process in which it cannot open them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Mapping

# https://docs.habana.ai, Debugging with Intel Gaudi Logs; that it aborts: opendatahub-io/opendatahub-tests, pull 2301.
VARIABLE = "HABANA_LOGS"


def moved(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that moves the logs to a folder of this user; nothing if they have one, or are not named.

    A container of Apptainer has the host's /tmp, so what an image names there may be another user's. From Intel's
    release 1.18 on, whatever imports torch opens them.
    """
    named = environment.get(VARIABLE)
    if not named or _is_own(Path(named)):
        return {}
    return {VARIABLE: str(Path(tempfile.gettempdir()) / f"habana_logs-{os.getuid()}")}


def _is_own(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder.stat().st_uid == os.getuid() and os.access(str(folder), os.W_OK | os.X_OK)
    except OSError:
        return False
