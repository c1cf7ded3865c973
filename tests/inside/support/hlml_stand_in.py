"""A stand-in for HLML, Intel's management library for Gaudi: its functions, called as a C library's are.

Cards are by index. What a card does not support, or a library does not have, is left out of `answers`.
"""

from __future__ import annotations

from typing import Any

NOT_SUPPORTED, NOT_FOUND = 3, 6


def card(module: int | None, address: str, **answers: Any) -> dict[str, Any]:
    """Return what a card answers: numbers, and texts as bytes, by the function's name without its beginning."""
    return {
        "get_module_id": module,
        "get_pci_info": b"\0\0\0\0" + address.encode(),
        "get_uuid": f"00P1-HL2000A1-14-{module}".encode(),
        "get_power_usage": 412_000,
        "get_total_energy_consumption": 7_500_000,
        "get_clock_info": 1650,
        "get_max_clock_info": 1800,
        "get_temperature": 51,
        "get_current_clocks_throttle_reasons": 0,
        "get_power_management_limit": 600_000,
        "get_memory_info": {"free": 0, "total": 96 << 30, "used": 3 << 20},
        **answers,
    }


class StandInHlml:
    """In place of the loaded library."""

    SIMULATED = True

    def __init__(self, *cards: dict[str, Any], status: int = 0) -> None:
        self.cards, self.status = cards, status

    def hlml_init(self) -> int:
        return self.status

    def hlml_device_get_count(self, count: Any) -> int:
        count._obj.value = len(self.cards)
        return 0

    def hlml_device_get_handle_by_index(self, index: Any, handle: Any) -> int:
        handle._obj.value = index.value + 1
        return 0 if index.value < len(self.cards) else NOT_FOUND

    def hlml_device_get_handle_by_pci_bus_id(self, address: bytes, handle: Any) -> int:
        places = [each["get_pci_info"][4:] for each in self.cards]
        handle._obj.value = places.index(address) + 1 if address in places else None
        return 0 if address in places else NOT_FOUND

    def __getattr__(self, name: str) -> Any:
        call = name.partition("hlml_device_")[2]
        if not any(call in each for each in self.cards):
            raise AttributeError(name)

        def function(handle: Any, *arguments: Any) -> int:
            return fill(self.cards[handle.value - 1].get(call), arguments)

        return function


def fill(answer: Any, arguments: Any) -> int:
    """Write an answer where a caller asks for it: a number, a text or a structure."""
    if answer is None:
        return NOT_SUPPORTED
    if isinstance(answer, bytes):
        arguments[0].raw = answer.ljust(len(arguments[0]), b"\0")
    elif isinstance(answer, dict):
        for field, value in answer.items():
            setattr(arguments[-1]._obj, field, value)
    else:
        arguments[-1]._obj.value = answer
    return 0
