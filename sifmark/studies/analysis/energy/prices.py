"""What energy costs and emits, by a site's own numbers: there are none of ours."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sifmark.core.errors import UsageError

JOULES_PER_KWH = 3.6e6
_KEYS = ("price_per_kwh", "currency", "co2_grams_per_kwh", "pue")


@dataclass(frozen=True)
class EnergyPrices:
    """A site's numbers; None where it gives none."""

    price_per_kwh: float | None = None
    currency: str = ""
    co2_grams_per_kwh: float | None = None
    pue: float | None = None  # power usage effectiveness: energy of the facility over that of its computers

    def cost(self, joules: float | None) -> float | None:
        """Return the cost of what computers used, in the currency."""
        return self._times(joules, self.price_per_kwh)

    def carbon(self, joules: float | None) -> float | None:
        """Return the emissions, in grams of CO2 or its equivalent, as the site counts them."""
        return self._times(joules, self.co2_grams_per_kwh)

    def facility_kwh(self, joules: float | None) -> float | None:
        """Return the energy of the facility in kWh, cooling included if the site gave its PUE."""
        return None if joules is None else joules / JOULES_PER_KWH * (self.pue or 1.0)

    def _times(self, joules: float | None, per_kwh: float | None) -> float | None:
        kwh = self.facility_kwh(joules)
        return None if kwh is None or per_kwh is None else kwh * per_kwh


def prices_of(site: Mapping[str, Any], **options: Any) -> EnergyPrices:
    """Return the numbers of `[energy]` in sifmark.toml, replaced by options that were given. Raises UsageError."""
    values = {**site, **{name: value for name, value in options.items() if value not in (None, "", 0.0)}}
    prices = EnergyPrices(**{name: values[name] for name in _KEYS if name in values})
    for name in ("price_per_kwh", "co2_grams_per_kwh", "pue"):
        value = getattr(prices, name)
        least = 1.0 if name == "pue" else 0.0
        if value is not None and not (math.isfinite(value) and value >= least):
            remedy = "a PUE is at least 1" if name == "pue" else "give a number from 0"
            raise UsageError(f"{name} = {value:g}", remedy, code="invalid-option")
    if prices.price_per_kwh is not None and not prices.currency:
        remedy = '--currency EUR, or currency = "EUR" below [energy] in sifmark.toml'
        raise UsageError("a price needs its currency", remedy, code="invalid-option")
    return prices
