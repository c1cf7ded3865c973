"""Commands for the devices of this host."""

from typing import Annotated

from sifmark.commands.definition import ENGINE, Option, command
from sifmark.core.settings import Settings


@command("device.prove", ENGINE, example="device.prove --image cpu --minutes 5")
def prove(
    settings: Settings,
    image: Annotated[
        str,
        Option("An image, a recipe, or an image file. [default: no image, but --python]", "NAME", completes="image"),
    ] = "",
    minutes: Annotated[int, Option("Time for all experiments.", "N", least=1)] = 20,
    output: Annotated[
        str, Option("A new folder for results and the page.", "FOLDER", "o", completes="folder")
    ] = "proof",
    workload: Annotated[str, Option("Only this workload. [default: all]", "NAME", completes="workload")] = "",
    python: Annotated[
        str, Option("Without an image: a Python that has PyTorch.", "FILE", completes="file")
    ] = "python3",
) -> None:
    """Try out a device; write a page on what holds."""
    from sifmark.commands.device.prove import prove_device

    prove_device(image, minutes, output, workload, python, settings)
