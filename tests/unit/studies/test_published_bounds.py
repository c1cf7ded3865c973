"""Published throughputs against the most that their devices can do in the precision that they ran in."""

import math
import re
from collections.abc import Iterable, Iterator

import pytest

from entrypoints.contract import cards
from entrypoints.contract.choices import PRECISIONS
from entrypoints.contract.session import DeviceFacts
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.results import peaks, roofline
from sifmark.studies.published.figures import Device, Figure
from sifmark.studies.published.load import load_published, published_names

CARDS = cards.load()
THROUGHPUT = re.compile(r"(epochs\.\d+\.)?throughput")


def devices_of(published: Device) -> list[DeviceFacts]:
    """The devices of our table that a published one may be."""
    return [
        DeviceFacts(entry["kind"], None, name, 1, entry["granularity"], None, 1, 1, "", simulated=False)
        for entry in peaks.table()
        for name in entry["names"]
        if re.search(published.pattern, name) and entry["granularity"] == published.granularity
    ]


def count_of(figure: Figure) -> int:
    """The devices of a figure: as printed, or stages of all replicas."""
    (stages,) = figure.conditions.get("stages", (1,))
    (replicas,) = figure.conditions.get("replicas", (1,))
    (devices,) = figure.conditions.get("devices", (int(stages) * int(replicas),))
    return int(devices)


def highest(figure: Figure, published: Device, precisions: Iterable[object]) -> float:
    """The highest throughput of a figure's devices, of all that it leaves open; nan if we have none of them."""
    (name,), (task,) = figure.conditions["workload"], figure.conditions["task"]
    bounds = []
    for device in devices_of(published):
        image = {"framework": "pytorch", "device": device.kind}
        configuration = resolve(parse([str(name), "--task", str(task)]), CARDS[str(name)], image)
        work = roofline.work_of_step(CARDS[str(name)], str(task), configuration.as_json())
        for precision in precisions:
            roof = peaks.roof(device, str(precision))
            if work and roof:
                bounds.append(roofline.bound(work, roof, count_of(figure)).throughput)
    return max(bounds, default=math.nan)


def throughputs() -> Iterator[tuple[Figure, Device]]:
    """Figures that are a throughput of one workload on one device."""
    for name in published_names():
        study = load_published(name)
        for figure in study.figures:
            is_rate = THROUGHPUT.fullmatch(figure.metric or "") and not figure.reference and figure.low is not None
            which = [figure.conditions.get(condition, ()) for condition in ("workload", "task", "device")]
            if is_rate and not figure.not_comparable and all(len(values) == 1 for values in which):
                yield figure, study.devices[str(which[2][0])]


def share(figure: Figure, published: Device, *precisions: str) -> float:
    """A figure over the highest of its devices."""
    assert figure.high is not None
    return figure.high / highest(figure, published, precisions or figure.conditions.get("precision", PRECISIONS))


RATES = [pytest.param(*rate, id=f"{rate[0].place}, {rate[0].column}") for rate in throughputs()]
SHARES = {figure.place: (figure, device) for figure, device in throughputs()}


@pytest.mark.parametrize(("figure", "published"), RATES)
def test_a_published_throughput_is_below_its_bound(figure: Figure, published: Device) -> None:
    fraction = share(figure, published)
    assert math.isnan(fraction) or fraction < 0.8, f"{fraction:.2f} of what the device can do"


def test_a_figure_above_the_peak_of_its_device_is_refused() -> None:
    """19 sequences/s of 512 tokens in FP32 on a V100, as a README has them."""
    table = next(table for table in load_published("deeplearningexamples").tables if table.name == "bert-pretraining")
    devices = load_published("deeplearningexamples").devices
    rows = {(figure.printed, str(figure.conditions["device"][0])): figure for figure in table.figures}
    for printed in ("19", "149.6"):
        figure = rows[printed, "v100_32"]
        assert figure.not_comparable
        assert share(figure, devices["v100_32"]) > 1


def test_most_throughputs_have_a_bound() -> None:
    bounded = [place for place, (figure, device) in SHARES.items() if not math.isnan(share(figure, device))]
    assert {place.split("/")[0] for place in bounded} >= {
        "caraml",
        "deeplearningexamples",
        "graphcore",
        "pearc22",
        "qwant",
    }
    assert len(bounded) >= 250


@pytest.mark.parametrize(
    ("place", "in_half", "in_single"),
    [("graphcore/resnet50-inference, row 1", 0.48, 1.90), ("pearc22/2, row 5", 0.28, 1.10)],
)
def test_a_figure_of_half_precision_is_no_figure_of_single(place: str, in_half: float, in_single: float) -> None:
    figure, device = SHARES[place]
    assert figure.conditions["precision"] == ("fp16",), "nothing is printed; the study's code says it"
    assert share(figure, device) == pytest.approx(in_half, abs=0.01)
    assert share(figure, device, "fp32") == pytest.approx(in_single, abs=0.01)
    assert any("github.com/graphcore/examples at commit" in trap for trap in figure.traps)
