"""Charts as files: SVG always, and for papers PDF and PNG at a width in millimetres."""

from sifmark.core.errors import UsageError
from sifmark.report.forms import Figure
from sifmark.report.packages import require_packages

USUAL_WIDTH = 85.0  # mm: a column of a journal
LEAST_WIDTH, MOST_WIDTH = 50.0, 300.0  # mm
DOTS = 300  # per inch, of bitmaps
_INCH, _PX_PER_INCH, _POINTS_PER_PX = 25.4, 96, 0.75


def require_width(width: float) -> None:
    """Raise UsageError for a width in mm that no paper has, and SifmarkError if what makes PDF and PNG is missing."""
    if not LEAST_WIDTH <= width <= MOST_WIDTH:
        cause = f"charts of {width:g} mm do not fit a paper"
        remedy = f"name a width of {LEAST_WIDTH:g} to {MOST_WIDTH:g} mm: --paper {USUAL_WIDTH:g}"
        raise UsageError(cause, remedy, code="invalid-option")
    require_packages("PDF and PNG of charts")


def pixels_of(width: float) -> float:
    """Return a width in mm in px of CSS."""
    return width / _INCH * _PX_PER_INCH


def figure_files(figure: Figure, width: float | None = None) -> dict[str, bytes]:
    """Return a chart as the files `NAME.svg` and, with a width in mm, `NAME.pdf` and `NAME.png` of that width.

    Letters keep their size of 9 points: a narrow chart has less room, not smaller letters.
    """
    pixels = pixels_of(width or USUAL_WIDTH)
    files = {f"{figure.name}.svg": figure.plot.fixed(pixels).encode()}
    if width is not None:
        import vl_convert

        in_points = figure.plot.fixed(pixels, _POINTS_PER_PX)
        files[f"{figure.name}.pdf"] = vl_convert.svg_to_pdf(in_points)
        files[f"{figure.name}.png"] = vl_convert.svg_to_png(in_points, ppi=DOTS)
    return files
