"""What no signature covers in a SIF: bytes outside of its objects, and some fields of its header.

A signature covers the objects, their descriptors except for places and dates of change, and of the header what starts
the file and identifies it. None of the rest changes what runs, but it could carry anything.
"""

from collections.abc import Iterator

from sifmark.engines import CheckFailed
from sifmark.engines.apptainer.sif import Sif

_LARGEST_GAP = 64 * 1024  # bytes: objects begin at a page, and the pages of some ARM and POWER hosts are this large
_REMEDY = "do not run it; fetch it again, or sign it again where it was built: `sifmark image.sign`"


def require_covered(sif: Sif) -> None:
    """Raise CheckFailed if a SIF holds something that is in none of its objects, or a header that contradicts them.

    Gaps are judged by their size before they are read, so a hole of any size takes no time.
    """
    fault = next((fault for check in (_behind, _gaps, _table, _header) for fault in check(sif)), None)
    if fault is not None:
        raise CheckFailed(f"{sif.path.name}: {fault}, which no signature covers", _REMEDY, code="image-altered")


def _behind(sif: Sif) -> Iterator[str]:
    if extra := sif.path.stat().st_size - sif.end:
        yield f"{extra} bytes are behind its last object"


def _gaps(sif: Sif) -> Iterator[str]:
    """Yield the gaps between objects that are more than padding."""
    place = 0
    with sif.path.open("rb") as stream:
        for start, end in sif.parts():
            if (size := start - place) > _LARGEST_GAP:
                yield f"{size} bytes from byte {place} on are in none of its objects"
            elif size > 0:
                stream.seek(place)
                if any(stream.read(size)):
                    yield f"bytes between byte {place} and byte {start} are in none of its objects"
            place = max(place, end)


def _table(sif: Sif) -> Iterator[str]:
    if any(sif.unused):
        yield "unused rows of its table are not empty"


def _header(sif: Sif) -> Iterator[str]:
    """Yield the fields of the header that do not follow from the objects."""
    header, used = sif.header, len(sif.descriptors)
    if header.architecture != sif.system.architecture:
        yield "its header names another architecture than its file system"
    if header.free != header.total - used:
        yield f"its header counts {header.free} free rows of its table, there are {header.total - used}"
    if header.data + header.data_size != sif.end:
        yield f"the objects end at byte {header.data + header.data_size} by its header, but at byte {sif.end}"
