"""How tests of properties draw their examples: the same ones each time, and however slow the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

USUAL = 60  # examples of a property
STEADY = settings(derandomize=True, deadline=None, max_examples=USUAL, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("steady", STEADY)
# The gate draws a quarter of them: pytest --hypothesis-profile=gate.
settings.register_profile("gate", STEADY, max_examples=USUAL // 4)


def load_profile():
    """Let this hold for all tests that come now."""
    settings.load_profile("steady")


def examples(count: int) -> int:
    """Return how many examples of a property to draw that needs another number of them than usual."""
    return max(count * settings().max_examples // USUAL, 1)
