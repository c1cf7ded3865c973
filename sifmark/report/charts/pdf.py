"""PDF files that are byte-identical for the same drawing.

The library that writes them orders fonts, and the keys of dictionaries, at random. Its files have one table of
objects, no streams of objects and one revision.
"""

import re

_HEADER = re.compile(rb"%PDF-[\d.]+\n%[^\n]*\n")
_TABLE = re.compile(rb"\nxref\n0 \d+\n((?:\d{10} \d{5} [fn]\r?\n)+)")
_ENTRY = re.compile(rb"(\d{10}) \d{5} n")
_NUMBER = re.compile(rb"(\d+) 0 obj\b")
_REFERENCE = re.compile(rb"\b(\d+) 0 R\b")
_KEYS = re.compile(rb"(?:^ +/\w+ \d+ 0 R\n)+", re.MULTILINE)
_STREAM = b"\nstream"


def in_order(pdf: bytes) -> bytes:
    """Return a PDF with sorted keys, and with objects in the order in which its root leads to them."""
    table = _TABLE.search(pdf)
    root, header = re.search(rb"/Root (\d+) 0 R", pdf), _HEADER.match(pdf)
    if table is None or root is None or header is None:
        raise ValueError("a PDF without a table of objects")
    objects = _objects(pdf, table)
    numbers: dict[bytes, int] = {}
    waiting = [root[1]]
    while waiting:
        name = waiting.pop()
        if name not in numbers:
            numbers[name] = len(numbers) + 1
            waiting += reversed(_REFERENCE.findall(objects[name][0]))
    return _file([_renumbered(*objects[name], numbers) for name in numbers], header[0])


def _objects(pdf: bytes, table: re.Match[bytes]) -> dict[bytes, tuple[bytes, bytes]]:
    """Return the dictionary, with its keys sorted, and the stream of each object, by its number."""
    starts = sorted(int(entry) for entry in _ENTRY.findall(table[1]))
    objects = {}
    for start, end in zip(starts, [*starts[1:], table.start()], strict=True):
        number = _NUMBER.match(pdf, start)
        assert number is not None, "a table of objects that does not lead to objects"  # noqa: S101
        head, separator, stream = pdf[number.end() : end].rstrip().partition(_STREAM)
        objects[number[1]] = (_KEYS.sub(_sorted, head + b"\n"), (separator + stream).lstrip(b"\n"))
    return objects


def _sorted(keys: re.Match[bytes]) -> bytes:
    return b"".join(sorted(keys[0].splitlines(keepends=True)))


def _renumbered(head: bytes, stream: bytes, numbers: dict[bytes, int]) -> bytes:
    return _REFERENCE.sub(lambda reference: b"%d 0 R" % numbers[reference[1]], head) + stream


def _file(objects: list[bytes], header: bytes) -> bytes:
    """Return a file of these objects, of which the first is its root."""
    parts, entries = [header], []
    for number, body in enumerate(objects, start=1):
        entries.append(b"%010d 00000 n\r\n" % sum(map(len, parts)))
        parts.append(b"%d 0 obj%s\n" % (number, body.rstrip()))
    size, start = len(entries) + 1, sum(map(len, parts))
    parts += [b"xref\n0 %d\n0000000000 65535 f\r\n" % size, *entries]
    parts.append(b"trailer\n<<\n  /Size %d\n  /Root 1 0 R\n>>\nstartxref\n%d\n%%%%EOF\n" % (size, start))
    return b"".join(parts)
