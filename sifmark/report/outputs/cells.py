"""Heat maps: a cell for each pair of names, the darker the larger."""

from collections.abc import Sequence
from dataclasses import dataclass

from sifmark.report.describe import LONGEST_NAME, short
from sifmark.report.forms import WIDER
from sifmark.report.svg import Bar, Margins, Plot, Scale, Text, text_width

_ROW, _NARROW = 26.0, 210.0  # px of a row, and of the area across on the narrowest page
_SHADES = 4  # looks `cell-1` to `cell-4`


@dataclass(frozen=True)
class Cell:
    """A cell: its words, and what share of the most it is, from 0 to 1."""

    x: str
    y: str
    text: str
    share: float
    words: str


@dataclass(frozen=True)
class CellChart:
    """Cells in rows and columns. What has more names is down, where there is room."""

    label: str
    x_title: str
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Cell]

    def plot(self) -> Plot:
        """Return the chart, drawn. Cells that are too narrow for their words have them as titles alone."""
        columns, rows = list(self.columns), list(self.rows)
        turned = len(columns) > len(rows)
        if turned:
            columns, rows = rows, columns
        names = [short(name, LONGEST_NAME) for name in rows]
        left = max(text_width(name) * WIDER for name in names) + 12
        height = _ROW * len(rows)
        plot = Plot(self.label, height, Scale(0.0, len(columns)), margins=Margins(left, 4, 24, 24 if turned else 42))
        middles = [number + 0.5 for number in range(len(columns))]
        plot.ticks(middles, lambda at: short(columns[int(at)], 16), "" if turned else self.x_title)
        if turned:
            plot.backdrop.append(Text(0, -14, self.x_title, dx=-left, look="axis"))
        for number, name in enumerate(names):
            plot.marks.append(Text(0, _ROW * (number + 0.5), name, "end", dx=-8, look="value"))
        fits = max(text_width(cell.text) for cell in self.cells) + 6 <= _NARROW / len(columns)
        for cell in self.cells:
            across, down = (cell.y, cell.x) if turned else (cell.x, cell.y)
            x, y = columns.index(across), _ROW * rows.index(down)
            ends = plot.across(x), plot.across(x + 1)
            shade = min(int(max(cell.share, 0.0) * _SHADES) + 1, _SHADES)
            plot.marks.append(Bar(*ends, y + 1, _ROW - 2, look=f"cell-{shade}", system=0, title=cell.words))
            if fits:
                plot.marks.append(Text(plot.across(x + 0.5), y + _ROW / 2, cell.text, "middle", look="value"))
        return plot
