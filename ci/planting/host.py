"""Faults of the host side."""

from __future__ import annotations

from faults import Fault

HOST: tuple[Fault, ...] = ()
