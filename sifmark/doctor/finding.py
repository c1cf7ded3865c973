"""What was looked at and how it stands, with its remedy."""

from dataclasses import dataclass

GOOD, POOR, BAD = "good", "poor", "bad"  # poor: works, but slower or not for everybody


@dataclass(frozen=True)
class Finding:
    """One thing looked at. The remedy is empty where nothing needs one."""

    subject: str
    state: str
    seen: str
    remedy: str = ""
