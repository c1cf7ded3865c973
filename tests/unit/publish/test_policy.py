"""Which images may be published."""

from dataclasses import replace
from typing import Any

import pytest

from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.publish.stores import must_be_signed, require_allowed

LABELS = {
    "org.sifmark.stand-in": "false",
    "org.sifmark.base-redistributable": "false",
    "org.sifmark.base-licence": "NVIDIA Deep Learning Container License",
}


@pytest.mark.parametrize(
    ("host", "changed", "cause"),
    [
        ("registry.example", {}, "Licence: NVIDIA Deep Learning Container License"),
        ("127.0.0.1:5000", {}, "may not be redistributed"),
        ("inside.example", {}, "may not be redistributed"),  # another port is another registry
        ("inside.example:5000", {}, None),
        ("", {}, None),
        ("registry.example", {"org.sifmark.base-redistributable": "true"}, None),
        ("registry.example", {"org.sifmark.stand-in": "true"}, "has a test base"),
        ("127.0.0.1:5000", {"org.sifmark.stand-in": "true"}, None),
    ],
)
def test_which_images_may_leave(site: Settings, host: str, changed: dict[str, Any], cause: str | None) -> None:
    settings = replace(site, private_registries=("inside.example:5000",))
    if cause is None:
        require_allowed(host, "cuda.sif", {**LABELS, **changed}, settings)
        return
    with pytest.raises(SifmarkError, match=cause) as caught:
        require_allowed(host, "cuda.sif", {**LABELS, **changed}, settings)
    assert caught.value.code == "publishing-forbidden" and "private_registries" in caught.value.remedy


def test_a_site_that_trusts_keys_pulls_nothing_unsigned(site: Settings) -> None:
    assert not must_be_signed(False, site)
    assert must_be_signed(True, site)
    assert must_be_signed(False, replace(site, keys=("site.pub",)))
    assert must_be_signed(False, replace(site, require_signature=True))
