"""What a result is to say of its image, which only the host that starts it can see."""

from collections.abc import Sequence

from sifmark.core.console import status
from sifmark.engines import CheckFailed, ImageInspection, should_check_signature
from sifmark.recipes.labels import BUILD_KEY

IMAGE_VARIABLE = "SIFMARK_IMAGE"  # which entrypoints/system/image.py reads


def image_facts(image: ImageInspection, required: bool, keys: Sequence[str]) -> dict[str, str | None]:
    """Return what the result is to say of the image, which only the process that starts it can see.

    Raises CheckFailed if a required signature is not valid.
    """
    signer = None
    if should_check_signature(required, keys, image.signed):
        try:
            signer = image.signer(keys)
            status(f"  signed by {signer}")
        except CheckFailed as reason:
            if required:
                raise
            status(f"  its signature is not trusted here: {reason.cause}")
    facts = {"identity": image.identity(), "digest": image.digest(), "signer": signer}
    return {**facts, "build_key": image.labels.get(BUILD_KEY)}
