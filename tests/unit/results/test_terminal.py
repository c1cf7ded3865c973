"""What people see of results on a terminal: nothing wider than it is, nothing left out, and no words of our own."""

import itertools
import re
import uuid
from collections.abc import Sequence
from typing import Any

import documents
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from sifmark.commands.answers import output_style
from sifmark.core.console import align_columns, fold, text_width
from sifmark.core.terminal import output_width
from sifmark.results.comparison.columns import grid_of
from sifmark.results.comparison.compare import Comparison, compare_observations
from sifmark.results.comparison.compatibility import FIELDS
from sifmark.results.comparison.forest import Dot, forest, letters_of
from sifmark.results.comparison.listing import listing
from sifmark.results.comparison.observation import observe
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.tables import ratio_text, text_style
from sifmark.results.comparison.text import as_text
from sifmark.results.documents import metric_value, metrics_of
from sifmark.results.numbers import abbreviated, compact, format_number
from sifmark.results.summary import summary
from sifmark.studies.analysis.scaling import scaling_curves
from sifmark.studies.analysis.scaling_report import report_lines

WIDTHS = (60, 80, 100, 140)
SERIAL = itertools.count()
WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), max_size=60)


def result(throughput: float, energy: float | None = None, **changes: Any) -> dict[str, Any]:
    more = {"metrics__throughput": {"value": throughput, "unit": "images/s"}}
    if energy is not None:
        more["metrics__energy_per_unit"] = {"value": energy, "unit": "J/image"}
    return documents.result(id=str(uuid.UUID(int=next(SERIAL), version=4)), **more, **changes)


def repeats(throughput: float, count: int = 3, **changes: Any) -> list[dict[str, Any]]:
    return [result(throughput * (1 + 0.001 * (number - 1)), **changes) for number in range(count)]


def compared(results: Sequence[dict[str, Any]], against: Sequence[dict[str, Any]] = (), **question: Any) -> Comparison:
    def observed(document: dict[str, Any], side: str) -> Any:
        numbers = {name: metric_value(metric) for name, metric in metrics_of(document).items()}
        return observe(document, side, f"{document['id']}.json", FIELDS, numbers)

    sides = [*((each, "results") for each in results), *((each, "against") for each in against)]
    asked = Query(**{"metrics": ("throughput",), "against": bool(against), **question})
    return compare_observations([observed(*each) for each in sides], asked)


def on_devices(count: int, batch: int) -> dict[str, Any]:
    counts = {f"accelerator__{name}": count for name in ("count", "ranks", "replicas")}
    return {**counts, "configuration__batch_size": batch, "configuration__strategy": "ddp" if count > 1 else None}


# Widths


@given(WORDS, st.integers(3, 40), st.integers(0, 2))
def test_a_folded_text_fits_and_keeps_its_words(text: str, width: int, indent: int) -> None:
    lines = fold(text, width, indent)
    assert all(text_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.lists(st.lists(WORDS, min_size=3, max_size=3), min_size=2, max_size=5), st.integers(13, 60))
def test_a_folded_table_fits_and_keeps_its_cells(rows: list[list[str]], width: int) -> None:
    lines = list(align_columns(rows, width=width))
    assert all(text_width(line) <= width for line in lines)
    assert sorted("".join("".join(lines).split())) == sorted("".join("".join(map("".join, rows)).split()))


def test_an_interval_is_folded_only_where_it_does_not_fit() -> None:
    text = "83.3 img/s [46.5, 149.1] (T,B)"
    assert fold(text, 20) == ["83.3 img/s", "[46.5, 149.1] (T,B)"]
    assert fold(text, 10) == ["83.3 img/s", "[46.5,", "149.1]", "(T,B)"]


def test_a_table_with_more_columns_than_there_is_room_for_has_a_line_for_each_cell() -> None:
    heads, cells = [f"c{number}" for number in range(9)], [str(number) for number in range(9)]
    assert list(align_columns([heads, cells], width=12)) == [f"c{number}: {number}" for number in range(9)]


CHOICES = st.fixed_dictionaries(
    {
        "site": st.sampled_from(["alpha", "beta", "gamma", "a site with a long name, in Köln", "京都大学の計算機"]),
        "configuration__batch_size": st.sampled_from([8, 16, 2048]),
        "configuration__threads": st.sampled_from([1, 2]),
        "configuration__precision": st.sampled_from(["fp32", "bf16"]),
        "accelerator__count": st.sampled_from([1, 4]),
        "workload__identity": st.sampled_from(["sha256:" + "a" * 64, "sha256:" + "b" * 64]),
        "provenance__software__framework_version": st.sampled_from(["2.11.0", "2.12.0"]),
    }
)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(CHOICES, min_size=1, max_size=8, unique_by=str),
    st.sampled_from(WIDTHS),
    st.sampled_from(["", "site", "against"]),
)
def test_no_line_is_wider_than_the_terminal_and_every_row_is_there(
    choices: list[dict[str, Any]], width: int, baselines: str
) -> None:
    values = [1000 + 7 * number for number in range(len(choices))]
    results = [each for value, choice in zip(values, choices, strict=True) for each in repeats(value, 2, **choice)]
    half = len(results) // 4 * 2 if baselines == "against" else 0
    baseline = ("site", choices[0]["site"]) if baselines == "site" else None
    comparison = compared(results[half:], results[:half], baseline=baseline)
    for table in comparison.tables:
        lines = [line.keys for line in grid_of(table, comparison).lines]
        assert len(set(lines)) == len(lines), "the columns separate the rows"
    for style in (text_style(width), text_style()):
        text = as_text(comparison, style=style)
        if style.width:
            assert all(text_width(line) <= width for line in text.splitlines())
        for table in comparison.tables:
            for row in table.rows:
                value = row.means["throughput"].value
                assert value is not None and format_number(value) in text, "a row is missing"
    listed = "\n".join(listing((("x.json", each) for each in results), text_style(width)))
    assert all(text_width(line) <= width for line in listed.splitlines())
    shown = [int(runs) for runs in re.findall(r": (\d+) results?\b", " ".join(listed.split()))]
    assert sum(shown) == len(results)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_curves_of_several_systems_fit_and_name_their_system(width: int) -> None:
    results = [
        document
        for site, loss in (("alpha", 0.98), ("beta", 0.8))
        for count in (1, 2, 4)
        for document in repeats(100 * count * loss ** (count - 1), site=site, **on_devices(count, 8 * count))
    ]
    curves = scaling_curves(compared(results))
    assert len(curves) == 2
    lines = "\n".join(report_lines(curves, text_style(width), 0.9)).splitlines()
    assert all(text_width(line) <= width for line in lines)
    assert lines[0].split()[-2:] == ["alpha", "beta"], "the answer comes first"
    text = "\n".join(lines)
    for curve in curves:
        for point in curve.points:
            assert f"{format_number(point.throughput.value or 0)} ±" in text
    assert any(line.startswith("beta, from batch 8: bends at 2 devices") for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_summary_of_a_result_fits_and_has_the_facts_of_the_whole_one(width: int) -> None:
    document = documents.from_image("training")
    lines = summary(document, every_metric=True, width=width)
    assert all(text_width(line) <= width for line in lines)
    packed = "".join("".join(lines).split())
    for line in summary(document)[1:-1]:
        text = compact(line[2:].partition("  ")[2].strip())
        assert "".join(text.split()) in packed, text


def test_one_result_is_shown_by_question() -> None:
    lines = summary(documents.from_image("training"), width=80)
    questions = [line.split()[0] for line in lines[2:] if re.match(r"  \w", line) and not line.startswith("   ")]
    order = [each for each in questions if each in ("speed", "energy", "memory", "run", "correctness", "publish")]
    assert order == ["speed", "energy", "memory", "run", "correctness", "publish"] or "energy" not in order
    assert order.index("speed") < order.index("memory") < order.index("correctness") < order.index("publish")


def test_each_warning_begins_a_line_and_the_check_counts_in_the_time_that_a_run_took() -> None:
    document = result(1.0, provenance__stand_in=True, conditions_after__run_delay={"value": 85.0, "unit": "%"})
    document["started"], document["finished"] = "2026-11-26T05:00:00.000Z", "2026-11-26T05:06:21.000Z"
    document["numerics"]["seconds"] = 173.0
    lines = summary(document, width=80)
    heads = [line.split()[:3] for line in lines if line.startswith("  warning")]
    assert ["warning", "this", "image"] in heads and ["warning", "the", "host"] in heads
    assert not [line for line in lines if line.startswith("   ") and line.split()[0] == "warning"]
    assert "completed, 9 min 14 s" in " ".join(" ".join(lines[:2]).split())


def test_a_run_that_was_stopped_on_a_busy_host_says_so() -> None:
    document = result(1.0, status__state="interrupted", conditions__cpu_pressure={"value": 97.96, "unit": "%"})
    document["conditions_after"]["run_delay"] = {"value": None, "unit": "%", "reason": "the timed window did not end"}
    text = " ".join("\n".join(summary(document)).split())
    assert "the host was busy: threads waited 97.96 % of the last 10 s before the run" in text
    assert "publish no: interrupted, busy host" in text


def test_what_is_piped_has_no_width(capsys: pytest.CaptureFixture[str]) -> None:
    assert output_width() is None and output_style().width is None


# Columns and rows


def test_systems_are_columns_and_configurations_rows() -> None:
    results = [
        document
        for batch in (8, 16)
        for site, rate in (("alpha", 100), ("beta", 150), ("gamma", 50))
        for document in repeats(rate * batch, site=site, configuration__batch_size=batch)
    ]
    lines = as_text(compared(results, baseline=("site", "alpha"), between=0.0), style=text_style(80)).splitlines()
    at = next(number for number, line in enumerate(lines) if line.split()[:1] == ["batch"])
    assert lines[at].split() == ["batch", "alpha", "beta", "gamma"]
    rows = [line.split() for line in lines[at + 1 : at + 3]]
    assert [row[0] for row in rows] == ["8", "16"]
    for row in rows:
        ratios = [(row[number], row[number + 2]) for number, cell in enumerate(row) if cell.endswith("x")]
        assert [factor for factor, _ in ratios] == ["1.500x", "0.5000x"]
    assert [cell for cell in rows[0] if cell in "+-=?"] == ["+", "-"]


def test_signs_are_of_what_is_better_and_words_only_where_the_comparison_has_them() -> None:
    def side(site: str, rate: float, energy: float, **changes: Any) -> list[dict[str, Any]]:
        return [result(rate * (1 + 0.0001 * n), energy * (1 + 0.0001 * n), site=site, **changes) for n in range(3)]

    busy: dict[str, Any] = {"steadiness__steady": False, "configuration__batch_size": 16}
    sites = ("alpha", "beta", "gamma", "delta")
    results = [*side("alpha", 100, 1.0), *side("alpha", 100, 1.0, configuration__batch_size=16)]
    results += [each for site in sites[1:] for each in side(site, 50, 0.5)]
    results += [each for site in sites[1:] for each in side(site, 50, 0.5, **busy)]
    comparison = compared(results, baseline=("site", "alpha"), metrics=("throughput", "energy_per_unit"), between=0.0)
    text = as_text(comparison, style=text_style(80))
    assert "faster" not in text.partition("geometric means")[0] and "+ better, - worse, ? cannot tell" in text
    signs = [re.findall(r"x (?:±\S+ )?([-+=?])(?= |$)", line) for line in text.splitlines()]
    shown = [each for each in signs if each]
    assert {sign for each in shown for sign in each} == {"+", "-", "?"}
    assert "cannot tell: not steady (6 ratios)" in " ".join(text.split())
    full = as_text(comparison)
    for row in comparison.compared:
        for metric in ("throughput", "energy_per_unit"):
            assert ratio_text(row.ratios[metric], comparison.tables[0].units[metric]).partition(" ")[2] in full


def test_one_configuration_has_the_intervals_of_its_ratios_on_a_narrow_terminal() -> None:
    busy: dict[str, Any] = {"conditions_after__run_delay": {"value": 85.0, "unit": "%"}, "provenance__stand_in": True}
    rates = {16: (46.5, 83.3, 149.1), 32: (50.0, 62.0, 77.0)}
    results = [result(rate, configuration__batch_size=size, **busy) for size in rates for rate in rates[size]]
    comparison = compared(results, baseline=("configuration.batch_size", "16"))
    lines = as_text(comparison, style=text_style(80)).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("throughput"))
    number, ratio = lines[first : first + 2]
    assert number.endswith("62.0 [36.3, 106.1] (T,B)")
    assert ratio.strip() == "0.745x [0.207, 2.685] ?"
    assert number.index("62.0") == ratio.index("0.745x")
    piped = as_text(comparison).splitlines()
    assert any("62.0 [36.3, 106.1] (T,B)  0.745x [0.207, 2.685], cannot tell" in line for line in piped)
    assert "T test base, B busy host: do not publish these" in piped
    assert any("the host was busy in 6 results (threads waited 85.0 % of their time), for" in line for line in piped)


def test_more_systems_than_columns_are_rows() -> None:
    sites = [f"s{number}" for number in range(9)]
    results = [each for number, site in enumerate(sites) for each in repeats(100 + number, site=site)]
    text = as_text(compared(results, baseline=("site", "s0")))
    rows = [line for line in text.splitlines() if re.match(r"s\d ", line)]
    assert [row.split()[0] for row in rows] == sites[1:]


def test_what_follows_from_the_number_of_devices_is_said_once() -> None:
    results = [each for count in (1, 2) for each in repeats(100 * count, **on_devices(count, 8))]
    text = as_text(compared(results))
    assert "with accelerator.count: " in text and "strategy - / ddp" in text
    header = next(line for line in text.splitlines() if line.startswith("accelerator.count"))
    assert not {"strategy", "accelerator.ranks"} & set(header.split())


def test_facts_about_a_system_are_above_the_table_and_settings_in_one_line() -> None:
    results = [
        *repeats(100, site="alpha", accelerator__name="First", configuration__threads=2),
        *repeats(90, site="beta", accelerator__name="Second", configuration__threads=1),
    ]
    lines = as_text(compared(results, baseline=("site", "alpha")), style=text_style(80)).splitlines()
    assert lines[:2] == ["alpha  First (baseline)", "beta   Second"]
    assert "the columns differ in threads 2 / 1" in lines


def test_a_run_that_failed_stands_where_its_number_would_be() -> None:
    crash: dict[str, Any] = {"status__state": "out_of_memory", "configuration__batch_size": 64}
    results = [
        *(each for site in ("alpha", "beta") for each in repeats(100, site=site)),
        *repeats(200, site="beta", configuration__batch_size=64),
        result(1.0, site="alpha", **crash),
    ]
    lines = as_text(compared(results, baseline=("site", "alpha")), style=text_style(140)).splitlines()
    (row,) = [line for line in lines if re.match(r" *64 ", line)]
    assert "out of memory" in row and "200.0" in row


def test_the_best_of_many_tables_comes_first_and_names_its_system() -> None:
    identities = ["sha256:" + digit * 64 for digit in "ab"]
    results = [
        each
        for identity in identities
        for number in range(8)
        for each in repeats(100 + number, site=f"s{number}", workload__identity=identity)
    ]
    lines = as_text(compared(results, baseline=("site", "s0")), style=text_style(80)).splitlines()
    assert lines[0].split()[0] == "best" and lines[0].endswith("best other")
    assert " s7: 1.070x" in lines[1]
    assert text_width(max(lines, key=text_width)) <= 80


# Lists


def test_repeats_are_one_row_and_what_tells_rows_apart_is_named() -> None:
    results = [*repeats(100, configuration__steps=20), *repeats(90, 2, configuration__steps=40)]
    results.append(result(1.0, configuration__steps=40, status__state="crashed"))
    rows = list(listing(((f"{number}.json", each) for number, each in enumerate(results)), text_style()))[2:]
    assert [re.search(r" (\d|\d/\d)  +\S+ images/s", row)[1] for row in rows if "images/s" in row] == ["3", "2/3"]  # type: ignore[index]
    assert ["steps 20" in row for row in rows] == [True, False] and "steps 40" in rows[1]


def test_a_sweep_over_sizes_has_no_time_in_a_list() -> None:
    sweep = result(1.0, workload__name="memory_copy", workload__task="microbenchmark")
    sweep["metrics"]["small_message_latency"] = {"value": 6.234e-6, "unit": "s"}
    heads, row = list(listing([("x.json", sweep)], text_style(80)))[1:3]
    assert row[heads.index("time") :].split()[0] == "-"


def test_devices_and_clients_tell_runs_apart() -> None:
    results = [*repeats(100, **on_devices(1, 8)), *repeats(200, **on_devices(8, 8))]
    lines = list(listing((("x.json", each) for each in results), text_style(80)))
    assert "dev" in lines[1].split()
    assert [line.split()[lines[1].split().index("dev") + 1] for line in lines[2:]] == ["1", "8"]


# Pictures


def test_a_scale_has_ratios_in_order_and_only_ascii_where_there_is_no_more() -> None:
    lines = forest([[Dot("a", 0.5), Dot("b", 2.0, 1.5, 2.7)], [Dot("a", 1.0)]], blocks=False, width=40)
    head, both, one = lines
    assert all(line.isascii() and len(line) == 40 for line in lines)
    assert both.index("a") < both.index("|") < both.index("(") < both.index("b") < both.index(")")
    assert one.index("a") == head.index("1x")
    assert forest([[]], blocks=True) == []


def test_letters_of_systems_are_unlike() -> None:
    assert letters_of(["beta", "gamma"]) == ["b", "g"]
    assert letters_of(["node1", "node2", "京"]) == ["1", "2", "3"]


def test_ratios_are_drawn_on_a_wide_terminal_by_what_its_encoding_has() -> None:
    results = [*repeats(100, site="alpha"), *repeats(150, site="beta"), *repeats(50, site="gamma")]
    for blocks, axis in ((True, "│"), (False, "|")):
        text = as_text(compared(results, baseline=("site", "alpha")), style=text_style(140, blocks))
        assert axis in text and ("·" in text) is blocks
        assert "on the scale right is better: b beta, g gamma" in text
    assert "|" not in as_text(compared(results, baseline=("site", "alpha")), style=text_style(100))


def test_narrow_numbers() -> None:
    assert compact("4,720 images/s ± 0.2 %") == "4,720 images/s ±0.2%"
    assert abbreviated("1,700 sequences/s ±1.4%") == "1,700 seq/s ±1.4%"
