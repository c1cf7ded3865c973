"""The clean command: remove what can be made again."""

from sifmark.build.clean import remove_products, remove_stages
from sifmark.core.console import status
from sifmark.core.settings import Settings
from sifmark.engines import open_engine


def clean(settings: Settings, cache: bool) -> None:
    """Remove images of the engine in use, logs and assembled layers; with `cache` also wheels and converted bases."""
    engine = open_engine(settings)
    for name in remove_products(engine, settings):
        status(f"removed {name}")
    if cache:
        for name in remove_stages(engine):
            status(f"removed {name}")
