"""Pictures of reports in docs/pictures: what Chromium shows of a synthetic study, and of real results of an H200.

On a desk, a phone and paper, in the dark, and as people see it who tell few colours apart.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from images.devtools import Tab, chromium
from PIL import Image, ImageDraw
from synthetic_study import write_study

from sifmark.commands.command_line import main as sifmark
from sifmark.core import paths

PICTURES = paths.CHECKOUT / "docs" / "pictures"
REAL = paths.CHECKOUT / "tests" / "fixtures" / "h200"
DESK, PHONE = 1280, 390  # CSS pixels
SCREEN = 900  # CSS pixels, the height of a desk's screen
TALL = 2400  # CSS pixels of a phone's page that are shown: some three screens
COLOURS = 256  # of a picture, so that it is small
PAPER_DPI = 75  # of a printed sheet
LABEL = 40  # CSS pixels above charts, for what they are a picture of
CHARTS = "document.querySelector('.panels')"  # of the first workload
DEFICIENCIES = ("protanopia", "deuteranopia", "tritanopia", "achromatopsia")


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, chromium(Path(name) / "browser") as tab:
        folder = Path(name)
        write_study(folder / "study")
        page = report(folder / "study", folder / "report", "Synthetic study: systems and numbers are invented")
        real = report(REAL, folder / "real", "One NVIDIA H200, one run each")
        save("report", shot(tab, page, DESK), SCREEN)
        save("report-page", shot(tab, page, DESK))
        save("report-dark", shot(tab, page, DESK, dark=True), SCREEN)
        save("report-phone", shot(tab, page, PHONE), TALL)
        save("report-colours", colours(tab, page))
        save("report-print", printed(tab, page, folder))
        save("report-h200", shot(tab, real, DESK))


def report(results: Path, folder: Path, title: str) -> Path:
    """Write the report of some results, and return its page."""
    if sifmark(["report", str(results), "--output", str(folder), "--title", title, "--quiet"]):
        sys.exit(1)
    return folder / "index.html"


def shot(tab: Tab, page: Path, width: int, dark: bool = False) -> Image.Image:
    """Return what a page looks like from its beginning to its end."""
    tab.open(page, width, dark)
    file = page.with_suffix(".png")
    tab.picture(file)
    return Image.open(file).convert("RGB")


def colours(tab: Tab, page: Path) -> Image.Image:
    """Return the charts of the first workload, below each other as they look with each deficiency of colour vision."""
    tab.open(page, DESK)
    top, bottom = map(round, tab.value(f"(({{top, bottom}}) => [top, bottom])({CHARTS}.getBoundingClientRect())"))
    height = LABEL + bottom - top
    whole = Image.new("RGB", (DESK, height * len(DEFICIENCIES)), "white")
    for number, name in enumerate(DEFICIENCIES):
        tab.call("Emulation.setEmulatedVisionDeficiency", type=name)
        whole.paste(shot(tab, page, DESK).crop((0, top, DESK, bottom)), (0, number * height + LABEL))
        ImageDraw.Draw(whole).text((LABEL, number * height), name, "black", font_size=LABEL / 2)
    tab.call("Emulation.setEmulatedVisionDeficiency", type="none")
    return whole


def printed(tab: Tab, page: Path, folder: Path) -> Image.Image:
    """Return the first sheet of a printed page."""
    tab.open(page, DESK, media="")
    file = folder / "report.pdf"
    file.write_bytes(tab.printed())
    words = ["pdftoppm", "-png", "-singlefile", "-r", str(PAPER_DPI), str(file), str(file.with_suffix(""))]
    subprocess.run(words, check=True)
    return Image.open(file.with_suffix(".png")).convert("RGB")


def save(name: str, picture: Image.Image, height: int | None = None) -> None:
    """Write a picture, or its upper part, with few colours."""
    shown = picture.crop((0, 0, picture.width, min(height or picture.height, picture.height)))
    shown.quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
