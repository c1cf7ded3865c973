"""What a build by Apptainer will take: sizes from the cache, the sources and the registry, times from experience."""

from dataclasses import replace

from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.engines import UNPACKED_RATIO, Forecast
from sifmark.engines.apptainer.build import cache_entries
from sifmark.layers.cache import BASES, BASES_WITH_WHEELS, LAYERS
from sifmark.layers.eviction import rate
from sifmark.layers.offline import base_size, offline_base
from sifmark.layers.wheels import cached_size
from sifmark.oci.images import compressed_size
from sifmark.recipes.plan import Plan

# Bytes a second that the making of each stage managed on 2 cores; used until the cache has a history of its own.
_RATES = {BASES: 15e6, LAYERS: 30e6, BASES_WITH_WHEELS: 100e6}
# Bytes that a conversion takes in the temporary folder for each of the packed layers: they are copied there and
# unpacked, and the file system is packed. The base of rocm has the densest layers known: 20.6 GB, unpacked 30.8 GB, so
# 72 GB. Others take more, up to 5 for each, so this refuses only what cannot succeed.
TEMPORARY_RATIO = 3.5
_FINISHING_RATE = 150e6  # bytes a second: read, check, hash, write


def forecast_build(plan: Plan, settings: Settings) -> Forecast:
    """Estimate size, time and space of a build. Without wheels in the cache only the space for the base is known."""
    checksums = {kind: entry.checksum() for kind, entry in cache_entries(plan, settings).items()}
    if base_with_wheels := checksums[BASES_WITH_WHEELS]:
        return _forecast(base_with_wheels.size, {}, settings)
    base = checksums[BASES]
    packed = base.size if base else _packed_base_size(plan, settings)
    wheels = cached_size(plan.recipe.lock(plan.target), settings.cache)
    if packed is None:
        return Forecast()
    added = wheels or 0
    sizes = {BASES: packed, LAYERS: UNPACKED_RATIO * added, BASES_WITH_WHEELS: packed + added}
    missing = {kind: size for kind, size in sizes.items() if not checksums[kind]}
    forecast = _forecast(packed + added, missing, settings)
    if BASES in missing:
        forecast = replace(forecast, temporary=int(TEMPORARY_RATIO * packed))
    return replace(forecast, size=None, seconds=None) if wheels is None else forecast


def _forecast(image: int, missing: dict[str, int], settings: Settings) -> Forecast:
    """Return the forecast for an image of a size in bytes, and stages that have to be made, with their sizes."""
    rates = {kind: rate(settings.cache, kind) or _RATES[kind] for kind in missing}
    seconds = image / _FINISHING_RATE + sum(size / rates[kind] for kind, size in missing.items())
    return Forecast(size=image, seconds=seconds, cached=sum(missing.values()), stored=image)


def _packed_base_size(plan: Plan, settings: Settings) -> int | None:
    """Return the bytes of the base's packed layers: about what they take as squashfs."""
    try:
        if layout := offline_base(plan.base, settings.sources):
            return base_size(layout, plan.base.digest)
        return compressed_size(plan.base.address, plan.base.digest, plan.platform)
    except SifmarkError:
        return None
