"""The stage `smoke` of verify: an image tests itself, and answers a small run of each workload with a valid result."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from sifmark.core.errors import REBUILD_REMEDY
from sifmark.core.process import run
from sifmark.engines import CheckFailed
from sifmark.engines.locate import isolated_options
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY
from sifmark.recipes.names import cards
from sifmark.recipes.recipe import recipe_names
from sifmark.results.load import document_problems
from sifmark.trust.image import CheckSkipped, ImageUnderTest, pin_of_base

_USAGE = 2  # exit code of images for wrong usage
_LEFT_OUT = ": left out: "


def check_smoke(image: ImageUnderTest) -> list[str]:
    """Let an image test itself, and run each workload that its name stands for. Return what each answered.

    Raises CheckFailed, CommandError if the self-test fails, or CheckSkipped without the engine or a device.
    """
    require_engine(image)
    if image.signature_required:
        image.inspection.signer(image.settings.keys)
    options = isolated_options(image.engine, image.address)
    run(image.engine.command(image.address, "test", [], options), time_limit=image.settings.time_limit)
    answers = [_run_workload(image, workload, options) for workload in image.named_workloads]
    if all(_LEFT_OUT in answer for answer in answers):
        raise CheckSkipped("; ".join(answers), code="device-missing")
    return ["self-test passed", *answers]


def require_engine(image: ImageUnderTest) -> None:
    """Raise CheckSkipped unless the image's engine is installed."""
    if image.engine.version() is None:
        raise CheckSkipped(f"{image.engine.name.capitalize()} is not installed here", code="engine-missing")


def manual_command(image: ImageUnderTest, workload: str) -> str:
    """Return the advice to run a workload by hand."""
    return f"run it by hand to see: {shlex.join(image.engine.command(image.address, 'run', [workload, '--smoke'], []))}"


def _refusal(tail: Sequence[str]) -> str:
    """Return why an image refused its options: the line of its error, or the last one of an earlier version."""
    line = next((line for line in tail if line.startswith("error: ")), tail[-1])
    return line.removeprefix("error: ").removeprefix("sifmark: ")


def _run_workload(image: ImageUnderTest, workload: str, options: list[str]) -> str:
    argv = image.engine.command(image.address, "run", [workload, "--smoke"], options)
    command = run(argv, time_limit=image.settings.time_limit, check=False)
    if command.exit_code == _USAGE and _is_microbenchmark(workload):  # it needs several devices, or one that is no CPU
        return f"{workload}{_LEFT_OUT}{_refusal(command.tail)}"
    result = _valid_result(workload, image, command.output)
    status, software = result["status"], result["provenance"]["software"]
    if status["state"] == "no_device":
        raise CheckSkipped(f"{workload}: {status['message']}; its answer is valid", code="device-missing")
    if command.exit_code != 0:
        cause = f"{workload}: {status['state']}: {status['message']}"
        raise CheckFailed(cause, manual_command(image, workload), code="run-failed")
    _require_framework(image, software["framework_version"])
    return f"{workload}: {status['state']}, {software['framework']} {software['framework_version']}"


def _is_microbenchmark(workload: str) -> bool:
    card = cards().get(workload)
    return card is not None and card["tasks"] == ["microbenchmark"]


def _valid_result(workload: str, image: ImageUnderTest, answer: str) -> dict[str, Any]:
    """Return a run's result. Raises CheckFailed if it is not a valid one of this image."""
    remedy = manual_command(image, workload)
    try:
        result: Any = json.loads(answer)
    except ValueError as error:
        cause = f"{workload} did not answer with JSON alone: {error}"
        raise CheckFailed(cause, remedy, code="result-invalid") from error
    if not isinstance(result, dict):
        raise CheckFailed(f"{workload} answered with JSON that is no object", remedy, code="result-invalid")
    if problems := document_problems(result):
        raise CheckFailed(f"{workload}: its result is not valid: {problems[0]}", remedy, code="result-invalid")
    claimed = result["provenance"]["image"]
    if claimed is None or claimed["build_key"] != image.labels[BUILD_KEY]:
        cause = f"{workload}: its result does not name the image's build key"
        raise CheckFailed(cause, REBUILD_REMEDY, code="image-altered")
    return result


def _require_framework(image: ImageUnderTest, version: str | None) -> None:
    """Raise CheckFailed if the framework is another one than the base's, as far as it is pinned here."""
    if image.recipe not in recipe_names():
        return
    pin = pin_of_base(image)
    if pin is None or pin.digest != image.labels[BASE_DIGEST] or pin.framework_version is None:
        return
    if not str(version).startswith(pin.framework_version):
        cause = f"its framework says version {version}, the base has {pin.framework_version}"
        raise CheckFailed(cause, REBUILD_REMEDY, code="image-altered")
