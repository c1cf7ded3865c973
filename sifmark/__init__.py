"""sifmark: one benchmark image per AI accelerator, one workload set in each, one JSON answer from all.

>>> import sifmark
>>> image = sifmark.build("cpu")
>>> output = sifmark.run(image, "resnet50", batch_size=8, output="results/")
>>> sifmark.Study.load("quick", variant="small").run()

Each public name is imported when it is first used.
"""

from typing import Any

__version__ = "0.2.0"

# By public name the module that has it.
_PUBLIC = {
    "Image": "sifmark.builds.library",
    "Reporter": "sifmark.core.console",
    "RunOutput": "sifmark.engines.library",
    "Study": "sifmark.studies.library",
    "StudyOutcome": "sifmark.studies.library",
    "build": "sifmark.builds.library",
    "report_to": "sifmark.core.console",
    "run": "sifmark.engines.library",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value
