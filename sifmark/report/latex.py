"""Tables and citations for papers: booktabs, and numbers by siunitx. No foreign text is a command of LaTeX.

What pdfLaTeX has no glyph for is written as its code point, such as `U+4E2D`.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from sifmark.core.console import printable
from sifmark.report.citations import Work
from sifmark.report.tables import Cell, Column, Kind, Table

PREAMBLE = (
    "% \\usepackage{booktabs}",
    "% \\usepackage{siunitx} \\sisetup{group-minimum-digits=5}",
)
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': r"\char34{}",
    "\u00b5": r"\textmu{}",
    "\u03bc": r"\textmu{}",
    "\u00b0": r"\textdegree{}",
    "\u00b1": r"\textpm{}",
    "\u00d7": r"\texttimes{}",
    "\u2026": r"\dots{}",
    "\u20ac": r"\texteuro{}",
    "-": "{-}",  # two of them would be a dash
    **{
        character: f"\\textsuperscript{{{digit}}}"
        for digit, character in enumerate("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
    },
    **{character: f"\\{character}" for character in "{}$&#_%"},
    **{character: f"{{{character}}}" for character in "[]*"},  # which \\ takes for its arguments
}
_LAST = "\u017e"
# What every encoding of pdfLaTeX can write: letters with these accents, and these.
_ACCENTS = frozenset("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327")
_LETTERS = frozenset("\u00df\u00e6\u0153\u00f8\u00c6\u0152\u00d8\u0142\u0141\u00a1\u00bf\u00a7\u00a9\u00a3")
_ADDRESS = re.compile(r"https?://[A-Za-z0-9./:?&=+~@,;()_-]+")
_WRITTEN = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def latex_text(text: str) -> str:
    """Return untrusted text escaped for the body of a LaTeX document."""
    return "".join(map(_character, printable(text)))


def latex_table(table: Table) -> str:
    """Return a table as a float with caption and label."""
    return "\n".join(_lines(table)) + "\n"


def bibliography(works: Iterable[Work]) -> str:
    return "\n".join(map(_entry, works))


def _entry(work: Work) -> str:
    """Return an entry that every style of BibTeX has."""
    names = re.split(r",\s*|\s+and\s+", work.authors.replace(" et al.", ", others"))
    fields = {
        "title": f"{{{latex_text(work.title)}}}",
        "author": " and ".join(f"{{{latex_text(name)}}}" if name != "others" else name for name in names if name),
        "howpublished": latex_text(work.venue),
        "year": str(work.year or ""),
        "note": latex_text(f"Version {work.version}") if work.version else "",
        "url": work.url if _ADDRESS.fullmatch(work.url) else "",
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@misc{{{work.key},", *lines, "}"]) + "\n"


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    parts = unicodedata.normalize("NFD", character)
    accented = character <= _LAST and parts[0] <= "~" and set(parts[1:]) <= _ACCENTS
    if character <= "~" or character in _LETTERS or accented:
        return character
    return f"U+{ord(character):04X}"


def _lines(table: Table) -> Iterator[str]:
    yield from PREAMBLE
    yield r"\begin{table}"
    yield r"  \centering"
    caption = " ".join(filter(None, (f"{table.title}.", table.caption, table.legend)))
    yield f"  \\caption{{{latex_text(caption)}}}"
    yield f"  \\label{{tab:{table.name}}}"
    columns = [_column(column, [row.cells[index] for row in table.rows]) for index, column in enumerate(table.columns)]
    yield f"  \\begin{{tabular}}{{{''.join(columns)}}}"
    yield r"    \toprule"
    yield f"    {' & '.join(map(_head, table.columns))} \\\\"
    yield r"    \midrule"
    for row in table.rows:
        yield f"    {' & '.join(map(_cell, table.columns, row.cells))} \\\\"
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"


def _column(column: Column, cells: Sequence[Cell]) -> str:
    """Return the type of a column: of numbers, one that aligns their points, and one for intervals and marks."""
    if column.kind is not Kind.NUMBER:
        return "l"
    parts = [_digits(cell.text) for cell in cells if _WRITTEN.fullmatch(cell.text)]
    before = max((len(whole) for whole, *_ in parts), default=1)
    after = max((len(fraction) for _, fraction, _ in parts), default=0)
    exponent = max((len(power.lstrip("-")) for *_, power in parts), default=0)
    sign = "-" if any(cell.text.startswith("-") for cell in cells) else ""
    power = f"e-{exponent}" if exponent else ""
    return f"S[table-format={sign}{before}{f'.{after}' if after else ''}{power}]@{{\\,}}l"


def _digits(text: str) -> tuple[str, str, str]:
    mantissa, _, power = text.replace(",", "").lstrip("+-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    return whole, fraction, power.lstrip("+").lstrip("0")


def _head(column: Column) -> str:
    head = latex_text(column.head)
    return f"\\multicolumn{{2}}{{c}}{{{head}}}" if column.kind is Kind.NUMBER else head


def _cell(column: Column, cell: Cell) -> str:
    letters = ",".join(mark.symbol for mark in cell.marks)
    marks = f"\\textsuperscript{{{latex_text(letters)}}}" if letters else ""
    if column.kind is not Kind.NUMBER:
        return (_with_numbers(cell.text) if column.kind is Kind.RATIO else latex_text(cell.text)) + marks
    if not _WRITTEN.fullmatch(cell.text):
        return f"{{{latex_text(cell.text)}}} & {_with_numbers(cell.small)}{marks}".rstrip()
    return f"{cell.text.replace(',', '')} & {_with_numbers(cell.small)}{marks}".rstrip()


def _with_numbers(text: str) -> str:
    """Return words with numbers, such as `1.37x faster ± 2.4 %`, with each number as siunitx writes it."""
    parts: list[str] = []
    end = 0
    for match in _WRITTEN.finditer(text):
        parts += [latex_text(text[end : match.start()]), f"\\num{{{match[0].rstrip(',').replace(',', '')}}}"]
        comma = match[0].endswith(",")
        end = match.end() - comma
        if text[end : end + 1] == "x":
            parts.append(r"$\times$")
            end += 1
    return "".join([*parts, latex_text(text[end:])])
