"""What earlier versions wrote is read as before: results and baselines."""

import shutil
from pathlib import Path

import pytest

import sifmark
from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.query import Query
from sifmark.studies.history.baseline import read_baseline

WRITTEN = Path(__file__).parents[2] / "fixtures" / "0.2.0"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN, tmp_path / "written"))


def test_results_are_compared_with_a_baseline_of_theirs(written: Path) -> None:
    kept = list(read_baseline(written / "baselines", "kept").observations())
    query = Query(every_metric=True, against=True)
    comparison = compare_results([str(written / "results")], query, baselines=kept)
    assert not comparison.refused and not comparison.excluded
    (row,) = comparison.compared
    assert row.ratios["throughput"].value == pytest.approx(1)
    assert comparison.units["energy_per_unit"] == "J/image"


def test_results_are_loaded_with_todays_units(written: Path) -> None:
    results = sifmark.load(written / "results")
    assert len(results) == 3 and not results.invalid
    assert {each.metrics["energy_per_unit"].unit for each in results} == {"J/image"}


def test_a_result_of_0_1_0_is_valid_and_has_todays_units(made_by_0_1_0: Path) -> None:
    (result,) = sifmark.load(made_by_0_1_0 / "from-image.json")
    assert result.document["schema_version"] == "1.0" and result.metrics["throughput"].value
    assert result.metrics["energy_per_unit"].unit == "J/image"
