"""May an image leave this site?"""

from collections.abc import Mapping

from sifmark.core.errors import SifmarkError
from sifmark.core.settings import settings
from sifmark.oci.reference import is_loopback
from sifmark.recipes.plan import LABEL, STAND_IN

_LICENCE, _REDISTRIBUTABLE = f"{LABEL}.base-licence", f"{LABEL}.base-redistributable"


def require_allowed(host: str, name: str, labels: Mapping[str, str]) -> None:
    """Raise SifmarkError where an image may not leave: its base's licence, or a stand-in that others took for real.

    A folder, whose host is empty, leaves nothing by itself.
    """
    if not host or host in settings().private_registries:
        return
    remedy = f'if nobody outside may pull from {host}, say so in sifmark.toml: private_registries = ["{host}"]'
    if labels.get(STAND_IN) == "true":
        if not is_loopback(host):
            raise SifmarkError(f"{name} is built on a stand-in: it is for tests", remedy)
    elif labels.get(_REDISTRIBUTABLE) != "true":
        licence = labels.get(_LICENCE, "unknown")
        raise SifmarkError(f"{name}: its base may not be redistributed. Licence: {licence}", remedy)
