"""Whether an image may be published."""

from collections.abc import Mapping

from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.oci.reference import is_loopback
from sifmark.recipes.labels import LABEL, STAND_IN

_LICENCE, _REDISTRIBUTABLE = f"{LABEL}.base-licence", f"{LABEL}.base-redistributable"


def must_be_signed(signed: bool, settings: Settings) -> bool:
    """Return whether a pulled image needs a trusted signature: if requested, or if this site trusts keys at all."""
    return signed or settings.require_signature or bool(settings.keys)


def require_allowed(host: str, name: str, labels: Mapping[str, str], settings: Settings) -> None:
    """Raise SifmarkError if an image may not be pushed to a host, because of its base's licence, or as a stand-in.

    Others would take a stand-in for the real image. A folder, whose host is empty, publishes nothing by itself.
    """
    if not host or host in settings.private_registries:
        return
    remedy = f'if nobody outside may pull from {host}, say so in sifmark.toml: private_registries = ["{host}"]'
    if labels.get(STAND_IN) == "true":
        if not is_loopback(host):
            raise SifmarkError(f"{name} has a test base: it is only for tests", remedy, code="publishing-forbidden")
    elif labels.get(_REDISTRIBUTABLE) != "true":
        licence = labels.get(_LICENCE, "unknown")
        cause = f"{name}: its base may not be redistributed. Licence: {licence}"
        raise SifmarkError(cause, remedy, code="publishing-forbidden")
