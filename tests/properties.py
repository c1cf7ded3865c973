"""How tests of properties draw their examples: the same ones each time, and however slow the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)


def load_profile():
    """Let this hold for all tests that come now."""
    settings.load_profile("steady")
