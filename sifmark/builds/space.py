"""Whether builds fit on the disks of this host, as far as their forecasts can tell."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from sifmark.core.environment import temporary_folder
from sifmark.core.errors import SifmarkError
from sifmark.core.files import existing_part, free_space, human_size
from sifmark.core.settings import Settings
from sifmark.engines import Forecast

_REMEDY = (
    "free space (sifmark clean, sifmark clean --cache), or name another folder: cache and dist in sifmark.toml, "
    "APPTAINER_TMPDIR for temporary files"
)


def require_space(forecasts: Iterable[Forecast], settings: Settings) -> None:
    """Raise SifmarkError if builds surely do not fit into the cache, the folder of images and the temporary folder.

    Of temporary files only those of one build count: builds need not run side by side.
    """
    estimates = list(forecasts)
    cached, stored = sum(each.cached for each in estimates), sum(each.stored for each in estimates)
    temporary = max((each.temporary for each in estimates), default=0)
    # Temporary files are gone when the first image is written.
    _require({settings.cache: cached, temporary_folder(): temporary})
    _require({settings.cache: cached, settings.dist: stored})


def _require(needed: Mapping[Path, int]) -> None:
    """Raise SifmarkError if what folders get at once does not fit on a file system that they share."""
    shared: dict[int, list[Path]] = defaultdict(list)
    for folder, size in needed.items():
        if size:
            shared[existing_part(folder).stat().st_dev].append(folder)
    for folders in shared.values():
        size, free = sum(needed[folder] for folder in folders), free_space(folders[0])
        if size > free:
            where = " and ".join(map(str, folders))
            cause = f"the builds add about {human_size(size)} to {where}, with no more than {human_size(free)} left"
            raise SifmarkError(cause, _REMEDY, code="disk-full")
