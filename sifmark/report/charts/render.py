"""Rendering: a chart as SVG inside a page, whose colours follow the page, and as files for a paper."""

import re
import textwrap
from typing import Any
from xml.etree import ElementTree

from sifmark.core.console import printable
from sifmark.report.charts import theme
from sifmark.report.charts.chart import Chart

COLUMN, PAGE = 85.0, 178.0  # millimetres: widths of figures in journals
DOTS = 300  # per inch, of bitmaps
LONGEST_TEXT = 400
_LINE = 66  # letters of a line below a chart
_COLUMN_UP_TO = 520.0  # the widest chart for one column; wider ones are as wide as a page
_INCH, _POINTS = 25.4, 72
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_HREF = f"{{{_XLINK}}}href"
_VEGA = "https://vega.github.io/vega-datasets/"  # Vega puts it before addresses within a page
_LINKS = ("#", "https://", "http://")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_FRAME = re.compile(r"translate\(([\d.]+),")  # of what is between the axes
_USUAL_LEFT, _WIDER = 60.0, 0.15  # the width of labels that are numbers; how much wider a font may be than ours
_RIGHT = 18.0  # for names of lines at the right
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_LENGTHS = ("d", "transform", "x", "x2", "y", "y2", "width", "height")
_NEEDLESS = ("aria-roledescription", "aria-label", "role", "class", "pointer-events", "stroke-miterlimit", _HREF)
_FONT = {"font-family": theme.FONT, "font-size": f"{theme.FONT_SIZE}px"}
_INHERITED = {*_FONT.items(), ("opacity", "1"), ("stroke-width", "1"), ("fill-opacity", "1")}
_VARIABLES = {colour.light: theme.variable(colour) for colour in theme.COLOURS}


def page_svg(chart: Chart) -> str:
    """Return a chart as SVG to put into a page that has the style of `theme.page_style`.

    It is as wide as the element around it. Descriptions of marks are their titles: tooltips, and accessible names.
    """
    root = _drawing(chart)
    for element in root.iter():
        for name in ("fill", "stroke"):
            if colour := _VARIABLES.get(element.get(name, "")):
                element.set(name, colour)
    _leave_room(root)
    for name in ("height", "version"):
        del root.attrib[name]
    root.attrib.update(
        {"class": "chart", "role": "graphics-document", "aria-label": _clean(chart.title), "width": "100%"}
        | {"overflow": "visible"}  # where a reader's font is wider
    )
    return ElementTree.tostring(root, encoding="unicode")


def paper_files(chart: Chart) -> dict[str, bytes]:
    """Return a chart as the files `NAME.svg`, `NAME.png` and `NAME.pdf`, as wide as a column or a page of a journal.

    Links are left out, and colours are those on white.
    """
    import vl_convert

    root = _on_paper(chart)
    in_points = ElementTree.tostring(root, encoding="unicode")
    return {
        f"{chart.name}.svg": _in_point_units(root),
        f"{chart.name}.png": vl_convert.svg_to_png(in_points, ppi=DOTS),
        f"{chart.name}.pdf": vl_convert.svg_to_pdf(in_points),
    }


def paper_svg(chart: Chart) -> bytes:
    """Return the first of `paper_files` alone."""
    return _in_point_units(_on_paper(chart))


def _on_paper(chart: Chart) -> ElementTree.Element:
    """Return a chart on white without links, as wide as a column or a page in points."""
    root = _drawing(chart)
    root.insert(0, ElementTree.Element(f"{{{_SVG}}}rect", width="100%", height="100%", fill="#ffffff"))
    for link in root.iter(f"{{{_SVG}}}a"):
        link.tag = f"{{{_SVG}}}g"
        link.attrib.clear()
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    size = (COLUMN if width <= _COLUMN_UP_TO else PAGE) / _INCH * _POINTS
    root.attrib.update({"width": f"{size:.2f}", "height": f"{size * height / width:.2f}"})
    return root


def _in_point_units(root: ElementTree.Element) -> bytes:
    root.attrib.update({name: f"{root.attrib[name]}pt" for name in ("width", "height")})
    svg: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return svg + b"\n"


def _drawing(chart: Chart) -> ElementTree.Element:
    """Return a chart as SVG in light colours, without what only Vega's scripts use."""
    import vl_convert  # an extra, and slow to load

    ElementTree.register_namespace("", _SVG)
    if chart.is_table:
        raise ValueError(f"{chart.name} is a table without a picture")
    spec = {**_clean(dict(chart.spec)), **_reservation(chart), "config": theme.config()}
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    root = ElementTree.fromstring(svg)  # noqa: S314 - Vega wrote it, and has escaped every text
    ids = {
        element.attrib["id"]: f"{chart.name}-{number}"
        for number, element in enumerate(element for element in root.iter() if "id" in element.attrib)
    }
    for element in root.iter():
        _tidy(element, ids)
    root.attrib.update(_FONT)
    return root


def _reservation(chart: Chart) -> dict[str, Any]:
    """Return the lines below a chart whose results are not for publication."""
    lines = textwrap.wrap(_clean(chart.reservation), _LINE)
    return {"title": {"text": lines}} if lines else {}


def _tidy(element: ElementTree.Element, ids: dict[str, str]) -> None:
    """Shorten an element, name it uniquely in a page, and make its words a tooltip."""
    words = element.get("aria-label") if _is_mark(element) else None
    address = element.get(_HREF)
    for name in _NEEDLESS:
        element.attrib.pop(name, None)
    for name, value in element.items():
        if (name, value) in _INHERITED:
            del element.attrib[name]
        else:
            element.set(name, _shorter(name, value, ids))
    if words:
        element.set("role", "graphics-symbol")
        ElementTree.SubElement(element, f"{{{_SVG}}}title").text = words
    if address is not None and _is_link(address := address.removeprefix(_VEGA)):
        element.set("href", address)
    elif address is not None:
        element.tag = f"{{{_SVG}}}g"  # Vega links rows without an address to `undefined`


def _leave_room(root: ElementTree.Element) -> None:
    """Widen a drawing by what names beside it may need in a reader's font: on the left, long names of an axis."""
    frame = root.find(f"{{{_SVG}}}g")
    left = _FRAME.match("" if frame is None else frame.get("transform", ""))
    more = max(0.0, (float(left[1]) - _USUAL_LEFT) * _WIDER if left else 0.0)
    x, y, width, height = map(float, root.attrib["viewBox"].split())
    root.set("viewBox", f"{x - more:g} {y:g} {width + more + _RIGHT:g} {height:g}")


def _is_mark(element: ElementTree.Element) -> bool:
    """Return whether Vega drew an element for a row of data."""
    return element.get("role") == "graphics-symbol" and element.tag != f"{{{_SVG}}}g"


def _shorter(name: str, value: str, ids: dict[str, str]) -> str:
    if name in _LENGTHS:
        return _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}", value)
    return ids[value] if name == "id" else _REFERENCE.sub(lambda match: f"url(#{ids[match[1]]})", value)


def _is_link(value: Any) -> bool:
    """Return whether a value is an address that a mark may lead to, or the encoding of a channel."""
    return not isinstance(value, str) or value.startswith(_LINKS)


def _clean(value: Any) -> Any:
    """Return a specification whose texts can be drawn: control characters would end the process."""
    match value:
        case str():
            text = printable(value[: LONGEST_TEXT + 1])
            return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
        case dict():
            return {key: _clean(item) for key, item in value.items() if key != "href" or _is_link(item)}
        case list() | tuple():
            return [_clean(item) for item in value]
    return value
