"""The page of a report: its numbers are those of `compare`, each with its marks, and texts of anybody are texts."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from unit.refusals import refused
from unit.report import samples
from unit.report.chart_results import with_fields

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.report.describe import mean_text, scale_of_points
from sifmark.report.load import load_report_results
from sifmark.report.page import render_page
from sifmark.report.report import Report, make_report
from sifmark.report.scorecard import MOST_SYSTEMS
from sifmark.results.catalogue import metric_label
from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.exports import as_json
from sifmark.results.comparison.intervals import Mean, Ratio
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.tables import ratio_text
from sifmark.results.marks import marks_of_number, marks_of_result
from sifmark.studies.load import load_study
from sifmark.studies.study import System

Document = dict[str, Any]
EVIL = '<script>document.title="owned"</script>"><img src=x onerror=alert(1)>{{ 7 * 7 }}'
RIGHT_TO_LEFT = "\u05de\u05e2\u05e8\u05db\u05ea"
VOID = {"meta", "img", "br", "link", "input"}


@dataclass
class Page(HTMLParser):
    """What is on a page: elements, texts, and the rows of its tables of all numbers."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # with the elements around them
    rows: list[tuple[str, list[str]]] = field(default_factory=list)  # the result that a row leads to, and its cells
    _open: list[str] = field(default_factory=list)
    _links: list[str] = field(default_factory=list)
    _cells: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self._cells, self._links = [], []
        if tag in ("td", "th"):
            self._cells.append([])
        if tag == "a":
            self._links.append(str(attributes["href"]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"{tag} closes another element"
        if tag == "tr" and self._links:
            cells = [" ".join("".join(cell).split()) for cell in self._cells]
            self.rows.append((self._links[0].removeprefix("#result-"), cells))

    def handle_data(self, data: str) -> None:
        self.texts.append((data, tuple(self._open)))
        if self._cells and "tr" in self._open:
            self._cells[-1].append(data)


def parsed(page: str) -> Page:
    reader = Page()
    reader.feed(page)
    assert reader._open == [], "all elements are closed"
    return reader


H200 = paths.CHECKOUT / "tests" / "fixtures" / "h200"


def report_of(folder: Path, by: str = "", **options: Any) -> Report:
    return make_report(load_report_results([str(folder)], by), **options)


def page_of(folder: Path, **options: Any) -> str:
    return render_page(report_of(folder, **options))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of a study of two systems and what failed of it."""
    return parsed(page_of(samples.study(tmp_path_factory.mktemp("study"))))


def compared(folder: Path, metric: str) -> Mapping[frozenset[str], tuple[Mean, Document]]:
    """What `compare --format json` prints of a metric, by the IDs of the repeats."""
    ids = {str(file): json.loads(file.read_text())["id"] for file in folder.glob("*.json")}
    query = Query(metrics=(metric,), more_fields=("site",), baseline=("site", "alpha"))
    comparison = json.loads(as_json(compare_results([str(folder)], query)))
    rows = [row for table in comparison["tables"] for row in table["rows"]]
    numbers = {frozenset(map(ids.__getitem__, row["results"])): row["metrics"][metric] for row in rows}
    return {
        key: (Mean(number["repeats"], number["value"], number["low"], number["high"]), number)
        for key, number in numbers.items()
        if number["value"] is not None
    }


SPEEDS = st.lists(st.floats(0.01, 4000), min_size=12, max_size=12)  # so that meters read often enough
STATES: dict[str, Document] = {
    "": {},
    "T": {"provenance__stand_in": True},
    "S": {"provenance__simulated": True},
    "C": {"numerics__state": "not_run"},
    "U": {"steadiness__steady": False},
}


@settings(max_examples=examples(8))
@given(SPEEDS, st.sampled_from(sorted(STATES)), st.booleans())
def test_numbers_are_those_of_compare_and_have_their_marks(speeds: list[float], mark: str, one_system: bool) -> None:
    def documents() -> Iterable[Document]:
        for place, speed in enumerate(speeds):
            site = "alpha" if one_system or place % 2 else "beta"
            yield samples.sample(
                *(site, "pictures", (8, 16)[place // 2 % 2], place // 4 + 1 + 3 * (place % 2)),
                metrics__throughput={"value": speed, "unit": "images/s"},
                **STATES[mark],
            )

    with TemporaryDirectory() as name:
        folder = samples.write(Path(name), documents())
        report = report_of(folder)
        page = parsed(render_page(report))
        (strip,) = report.strips
        assert strip.table is not None
        places = samples.places_of(strip.table)
        wide = {id_: cells for id_, cells in page.rows if len(cells) == len(strip.table.columns)}
        for metric in ("throughput", "energy_per_unit", "power_mean"):
            place, scale = places[metric_label(metric)], scale_of_points(strip.workload.points(metric))
            expected = compared(folder, metric)
            assert len(wide) == len(expected)
            for ids, (mean, _) in expected.items():
                (cell,) = (cells[place] for id_, cells in wide.items() if id_ in ids)
                number, _, interval = mean_text(mean, scale).partition(" ")
                assert cell.startswith(number) and interval in cell
                assert mark in cell.removeprefix(number), f"{cell} lacks {mark}"


def test_a_ratio_is_in_the_words_of_compare(tmp_path: Path) -> None:
    folder = samples.write(
        tmp_path, (samples.sample(site, "pictures", 8, n) for site in samples.SYSTEMS for n in (1, 2, 3))
    )
    (number,) = (number for _, number in compared(folder, "throughput").values() if number["ratio"])
    text = " ".join(" ".join(text for text, _ in parsed(page_of(folder)).texts).split())
    assert ratio_text(Ratio(number["ratio"], number["ratio_low"], number["ratio_high"]), "images/s") in text


def test_what_compare_refuses_is_said_and_not_shown(tmp_path: Path) -> None:
    metered = [samples.sample("alpha", "pictures", 8, n) for n in (1, 2, 3)]
    other = [samples.sample("beta", "pictures", 8, n) for n in (1, 2, 3)]
    for document in other:
        document["power"]["scope"] = "board"
    page = parsed(page_of(samples.write(tmp_path, [*metered, *other])))
    heads = {text.partition(" [")[0] for text, around in page.texts if around[-2:] == ("th", "bdi")}
    assert "throughput" in heads and "energy per unit" not in heads
    assert any("power.scope" in text for text, _ in page.texts)


def test_excluded_results_have_no_number_but_a_place(page: Page) -> None:
    text = " ".join(text for text, _ in page.texts)
    assert "out of memory" in text and "a run that did not complete has no result to compare" in text
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    entries = [each for each in ids if str(each).startswith("result-")]
    assert len(entries) == len(list(samples.documents_of_study()))


def test_each_link_within_the_page_has_a_target_and_each_name_is_used_once(page: Page) -> None:
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    links = {str(attributes["href"]) for _, attributes in page.elements if attributes.get("href")}
    assert {link.removeprefix("#") for link in links if link.startswith("#")} <= set(names)
    assert {link for link in links if not link.startswith("#")} == set(), "nothing beside the page was promised"


def test_a_page_has_what_readers_without_eyes_or_mouse_need(page: Page) -> None:
    tags = [tag for tag, _ in page.elements]
    assert tags.count("h1") == 1 and {"header", "nav", "main", "footer", "aside"} <= set(tags)
    assert tags.count("table") == tags.count("caption")
    assert all("scope" in attributes for tag, attributes in page.elements if tag == "th")
    scrolled = [attributes for _, attributes in page.elements if attributes.get("class") == "scroll"]
    assert scrolled and all(each["tabindex"] == "0" and each["aria-label"] for each in scrolled)
    drawn = [attributes for tag, attributes in page.elements if tag == "svg" and attributes.get("role") == "img"]
    assert drawn and all(each["aria-label"] for each in drawn), "a chart is one image that says what it shows"
    first_link = next(attributes for tag, attributes in page.elements if tag == "a")
    assert first_link["class"] == "skip"


def test_a_page_asks_for_nothing_and_runs_nothing(page: Page) -> None:
    policy = next(str(attributes["content"]) for _, attributes in page.elements if attributes.get("http-equiv"))
    assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src" not in policy
    for tag, attributes in page.elements:
        assert tag not in ("script", "iframe", "object", "embed", "link", "base", "form", "img")
        assert not any(name.startswith("on") or name in ("src", "style") for name in attributes), attributes


def test_texts_of_anybody_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(samples.SYSTEMS, EVIL, ("<b>device</b>", 1.0))
    monkeypatch.setitem(samples.SYSTEMS, RIGHT_TO_LEFT, ("device", 2.0))
    documents = (
        samples.sample(site, "pictures", batch, n, workload__title=EVIL, host__hostname={"value": "h" * 8000})
        for site in (EVIL, RIGHT_TO_LEFT)
        for batch in (8, 16)
        for n in (1, 2, 3)
    )
    text = page_of(samples.write(tmp_path, documents), title=EVIL)
    page = parsed(text)
    test_a_page_asks_for_nothing_and_runs_nothing(page)
    assert "49" not in {data.strip() for data, _ in page.texts}, "no text is a template"
    assert "h" * 200 not in text, "a long text is cut"
    for data, around in page.texts:
        if RIGHT_TO_LEFT in data and not {"title", "svg"} & set(around):
            assert "bdi" in around, f"{data} may turn around what follows it"


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_same_results_give_the_same_bytes(tmp_path: Path, real: bool) -> None:
    folder = samples.study(tmp_path / "study", real)
    files = sorted(map(str, folder.glob("*.json")))
    first, second = (render_page(make_report(load_report_results(paths))) for paths in (files, files[::-1]))
    assert first == second


def test_one_result_makes_a_page(tmp_path: Path) -> None:
    page = parsed(page_of(samples.write(tmp_path, [samples.sample("alpha", "pictures", 8)])))
    assert any("the only result" in text for text, _ in page.texts) and page.rows


def test_failures_alone_are_nothing_to_publish(tmp_path: Path) -> None:
    page = parsed(page_of(samples.write(tmp_path, [samples.failure("alpha", "pictures", 8)])))
    assert any("Nothing to publish" in text for text, _ in page.texts) and not page.rows


def test_no_valid_result_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"schema_version": "1.1", "value": NaN}')
    with refused(SifmarkError, "result-missing") as caught:
        page_of(tmp_path)
    assert "a.json" in caught.value.cause


@pytest.mark.parametrize("count", [MOST_SYSTEMS, MOST_SYSTEMS + 1, 30])
def test_many_systems_have_a_heat_map(tmp_path: Path, count: int) -> None:
    sites = [f"device-{number:03}" for number in range(count)]
    documents = (samples.sample(site, "pictures", 8, n) for site in sites for n in (1, 2, 3))
    page = parsed(page_of(samples.write(tmp_path, documents)))
    classes = [str(attributes.get("class")) for _, attributes in page.elements]
    is_scorecard = any(name.startswith("grid ") for name in classes)
    assert (is_scorecard, "heat" in classes) == (count <= MOST_SYSTEMS, count > MOST_SYSTEMS)
    shown = {cells[1] for _, cells in page.rows if len(cells) > 8}
    assert shown == set(sites), "each has a row in the table of all numbers"


def test_boxes_hide_systems_without_a_script(page: Page) -> None:
    boxes = [attributes["id"] for tag, attributes in page.elements if tag == "input"]
    assert boxes == ["show-y1", "show-y2"]
    style = next(text for text, around in page.texts if around[-1:] == ("style",))
    assert "body:has(#show-y2:not(:checked)) main .y2{display:none}" in style


def test_the_order_is_training_before_inference_and_micro_benchmarks_below_systems(tmp_path: Path) -> None:
    page = page_of(samples.study(tmp_path))
    places = [page.index(f'id="{name}"') for name in ("verdict", "numbers", "pictures-training", "texts-training")]
    places += [page.index(f'id="{name}"') for name in ("pictures-requests", "systems", "methods", "runs")]
    assert places == sorted(places)
    real = page_of(H200, by="accelerator.name")
    assert real.index('id="systems"') < real.index('id="memory-copy-microbenchmark"') < real.index('id="methods"')


def test_marks_are_explained_where_they_are(tmp_path: Path) -> None:
    documents = [samples.sample("alpha", "pictures", 8, n, provenance__stand_in=True) for n in (1, 2, 3)]
    page = parsed(page_of(samples.write(tmp_path, documents)))
    assert any("Do not publish yet" in text for text, _ in page.texts)
    titles = {attributes["title"] for tag, attributes in page.elements if tag == "abbr"}
    assert "test base" in titles and titles <= {mark.name for mark in marks_of_number(map(marks_of_result, documents))}


def test_what_to_do_has_its_commands_as_code_and_examples_of_some(tmp_path: Path) -> None:
    some = [samples.sample("alpha", "pictures", 8, n, steadiness__steady=n != 2) for n in (1, 2)]
    page = page_of(samples.write(tmp_path, some))
    advice = {each.partition("</b>")[0]: each for each in page.partition('class="trust"')[2].split("<li>")[1:]}
    few = next(text for text in advice.values() if "Few repeats" in text)
    assert "<code>--repeat 3</code>" in few and "For example" not in few, "all results have it"
    assert "For example" in next(text for text in advice.values() if "Not steady" in text)
    assert "`" not in page


def test_questions_of_a_study_are_on_the_page(tmp_path: Path) -> None:
    study = replace(load_study("quick"), questions=("Is it <b>fast</b>?",))
    page = parsed(page_of(samples.study(tmp_path), study=study))
    assert ("Is it <b>fast</b>?", "bdi") in [(text, around[-1]) for text, around in page.texts if around]


def test_systems_say_what_distinguishes_them(tmp_path: Path) -> None:
    threads = {"alpha": 2, "beta": 1}
    documents = [samples.sample(site, "pictures", 8, configuration__threads=count) for site, count in threads.items()]
    study = load_study("quick")
    systems = (System("alpha", "cpu", "Two threads"),)
    report = report_of(samples.write(tmp_path, documents), study=replace(study, systems=systems))
    rows = {fact: values for fact, *values in samples.texts_of(report.systems)}
    assert rows["in the study"] == ["Two threads", "-"] and rows["threads of a process"] == ["2", "1"]
    assert "The systems differ in " in " ".join(report.methods) and "threads of a process 2" in " ".join(report.methods)


@pytest.mark.parametrize("devices", [1, 2])
def test_throughput_per_device_is_not_that_of_one_device_again(tmp_path: Path, devices: int) -> None:
    per_device = {"value": 5.0, "unit": "images/s"}
    document = samples.sample(
        *("alpha", "pictures", 8), metrics__throughput_per_device=per_device, accelerator__count=devices
    )
    (strip,) = report_of(samples.write(tmp_path, [document])).strips
    assert strip.table is not None
    assert (metric_label("throughput_per_device") in samples.places_of(strip.table)) == (devices > 1)


@pytest.mark.parametrize(
    ("strategies", "fields"),
    [({1: None, 2: "ddp", 4: "ddp"}, ("devices",)), ({1: None, 2: "ddp", 4: "fsdp"}, ("strategy", "devices"))],
)
def test_columns_that_say_nothing_are_left_out(
    tmp_path: Path, strategies: dict[int, str | None], fields: tuple[str, ...]
) -> None:
    documents = [samples.sample("alpha", "pictures", 8, accelerator__count=count) for count in strategies]
    results = with_fields(
        load_report_results([str(samples.write(tmp_path, documents))]),
        lambda each: {"configuration.strategy": strategies[each.observation.fields["accelerator.count"]]},
    )
    (strip,) = make_report(results).strips
    assert strip.table is not None
    assert tuple(samples.places_of(strip.table))[: len(fields) + 1] == (*fields, "system")


def test_memory_of_systems_is_that_of_one_device(tmp_path: Path) -> None:
    documents = [
        samples.sample(
            *("alpha", "pictures", 8 * count), accelerator__count=count, accelerator__memory_mib=81920.0 * count
        )
        for count in (1, 2, 4)
    ]
    report = report_of(samples.write(tmp_path, documents))
    assert ("memory of a device", "80 GiB") in samples.texts_of(report.systems)
    assert "4 devices of 80 GiB" in report.cards[0].facts[0]


@pytest.mark.full
def test_five_hundred_results_are_less_than_three_megabytes(tmp_path: Path) -> None:
    documents = (
        samples.sample(site, workload, 2**power, n)
        for site in samples.SYSTEMS
        for workload in samples.WORKLOADS
        for power in range(25)
        for n in range(1, 6)
    )
    assert len(page_of(samples.write(tmp_path, documents))) < 3_000_000
