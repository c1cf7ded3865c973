"""sifmark: one benchmark image per AI accelerator, one workload set in each, one JSON answer from all.

>>> import sifmark
>>> image = sifmark.build("cpu")
>>> sifmark.run(image, "resnet50", batch_size=8, output="results/")
>>> results = sifmark.load("results/")

The names in `__all__` are the public API; docs/analyse.md shows it. Each is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from sifmark.builds.library import Image, build, build_all
    from sifmark.core.console import Reporter, report_to
    from sifmark.core.errors import SifmarkError, UsageError
    from sifmark.engines.library import RunOutput, run
    from sifmark.library import Comparison, Result, Results, compare, load
    from sifmark.metering import Energy, meter
    from sifmark.results.peaks import Peaks, peaks
    from sifmark.studies.library import Study, StudyOutcome, Watcher

# By public name the module that has it.
_PUBLIC = {
    "Comparison": "sifmark.library",
    "Energy": "sifmark.metering",
    "Image": "sifmark.builds.library",
    "Peaks": "sifmark.results.peaks",
    "Reporter": "sifmark.core.console",
    "Result": "sifmark.library",
    "Results": "sifmark.library",
    "RunOutput": "sifmark.engines.library",
    "SifmarkError": "sifmark.core.errors",
    "Study": "sifmark.studies.library",
    "StudyOutcome": "sifmark.studies.library",
    "UsageError": "sifmark.core.errors",
    "Watcher": "sifmark.studies.library",
    "build": "sifmark.builds.library",
    "build_all": "sifmark.builds.library",
    "compare": "sifmark.library",
    "load": "sifmark.library",
    "meter": "sifmark.metering",
    "peaks": "sifmark.results.peaks",
    "report_to": "sifmark.core.console",
    "run": "sifmark.engines.library",
}
__all__ = [
    "Comparison",
    "Energy",
    "Image",
    "Peaks",
    "Reporter",
    "Result",
    "Results",
    "RunOutput",
    "SifmarkError",
    "Study",
    "StudyOutcome",
    "UsageError",
    "Watcher",
    "__version__",
    "build",
    "build_all",
    "compare",
    "load",
    "meter",
    "peaks",
    "report_to",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
