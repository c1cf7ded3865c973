"""Where study files are: shipped with sifmark, the site's own in `./studies`, or anywhere by their path."""

from pathlib import Path

from sifmark.core import paths
from sifmark.core.errors import UsageError, unknown_name

OWN = Path("studies")  # the site's own, below the working folder
SUFFIX = ".toml"


def study_files() -> dict[str, Path]:
    """Return the study files by name. The site's own come first where both have a name."""
    folders = [paths.STUDIES, OWN]
    return {path.stem: path for folder in folders for path in sorted(folder.glob(f"*{SUFFIX}"))}


def study_names() -> tuple[str, ...]:
    """Return the names of the studies that are shipped, and of the site's own."""
    return tuple(sorted(study_files()))


def find_study(name_or_path: str) -> Path:
    """Return the file of a study that is given by its name or path. Raises UsageError if there is none."""
    if name_or_path.endswith(SUFFIX) or "/" in name_or_path:
        path = Path(name_or_path).expanduser()
        if not path.is_file():
            remedy = "see which studies exist: sifmark study.list"
            raise UsageError(f"there is no study file {name_or_path}", remedy, code="file-missing")
        return path
    files = study_files()
    if name_or_path not in files:
        raise unknown_name("study", name_or_path, files)
    return files[name_or_path]
