"""Times of other programs: seconds since 1970, or ISO 8601, which needs a time zone. A zone is never guessed."""

from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sifmark.core.errors import UsageError

# Seconds since 1970 from 2001 to 2286: a larger number is in milliseconds or finer.
EARLIEST, LATEST = 1e9, 1e10


def zone_of(name: str) -> tzinfo | None:
    """Return a time zone by its name, such as Europe/Berlin; None for no name. Raises UsageError."""
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"there is no time zone {name!r}", "for example UTC or Europe/Berlin", code="invalid-option"
        ) from error


def seconds_since_1970(text: str, zone: tzinfo | None) -> float:
    """Return a time. Raises ValueError, with what is wrong, for one that is none or has no time zone."""
    try:
        number = float(text)
    except ValueError:
        return _from_iso(text, zone)
    if not EARLIEST <= number < LATEST:
        raise ValueError(f"{text} is no number of seconds since 1970")
    return number


def _from_iso(text: str, zone: tzinfo | None) -> float:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no time: write seconds since 1970, or 2026-11-27T12:00:00Z") from None
    if moment.tzinfo is None:
        if zone is None:
            raise ValueError(f"{text!r} has no time zone: name it with --time-zone")
        moment = moment.replace(tzinfo=zone)
    return moment.timestamp()
