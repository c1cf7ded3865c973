"""Wheels made here, and what fetching and unpacking them takes."""

import zipfile
from pathlib import Path

from sifmark.core.console import Step
from sifmark.core.settings import Settings
from sifmark.recipes.recipe import Target

SITE = Settings(cache=Path("/nowhere/cache"), dist=Path("/nowhere/dist"))
TARGET = Target("3.11", "x86_64")
STEP = Step("test", None)


def make_wheel(
    folder: Path, name: str = "tiny", version: str = "1.0", body: str = "x = 1\n", metadata: str = ""
) -> Path:
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", body)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return path
