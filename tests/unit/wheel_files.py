"""Wheels made here, and what fetching and unpacking them takes."""

import base64
import hashlib
import zipfile
from pathlib import Path

from sifmark.core.console import Step
from sifmark.core.settings import Settings
from sifmark.recipes.recipe import Target

SITE = Settings(cache=Path("/nowhere/cache"), dist=Path("/nowhere/dist"))
TARGET = Target("3.11", "x86_64")
STEP = Step("test")


def make_wheel(
    folder: Path,
    name: str = "tiny",
    version: str = "1.0",
    body: str = "x = 1\n",
    metadata: str = "",
    more: dict[str, str] | None = None,
) -> Path:
    """Write a wheel with one module, and `more` files by name."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": body,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
        **(more or {}),
    }
    rows = [f"{path},{record_hash(text)},{len(text.encode())}\n" for path, text in files.items()]
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{''.join(rows)}{info}/RECORD,,\n"}.items():
            archive.writestr(zipfile.ZipInfo(path), text)  # without the date of now
    return wheel


def record_hash(text: str) -> str:
    """Return the hash of a file as the list of a wheel has it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
