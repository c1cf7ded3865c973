"""Tables of observations: what is taken of them, and what is said of a file that holds none."""

from __future__ import annotations

import json

import pytest

from entrypoints.contract import cards
from entrypoints.contract.points import COLLECTIVES, operation_of
from entrypoints.contract.statuses import RunError, UsageError
from entrypoints.data import table
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve

RULE = {"observations": 3, "features": 2}
WHOLE = "a,b,c,y\n1,2,3,10\n4,5,6,20\n7,8,9,30\n0,0,0,0\n"
CARD = cards.load()["mcmc"]


def written(folder, text):
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        WHOLE.replace("\n", "\r\n"),
        "\ufeff" + WHOLE,
        "\n".join(WHOLE.splitlines()[:4]),
        WHOLE.replace("\n4", "\n\n4"),
        WHOLE.replace(",2,", ", 2.0e0,").replace("a,", '"a",'),
        WHOLE.replace("0,0,0,0", "nan,text"),
        WHOLE.replace("\n1,2,3,", "\n1,2,?,"),
    ],
    ids=["plain", "windows", "marked", "unended", "gap", "spelled", "rest", "column"],
)
def test_the_first_rows_and_features_are_taken_and_the_rest_is_not_looked_at(tmp_path, text):
    assert table.read(written(tmp_path, text), RULE) == ([[1, 2], [4, 5], [7, 8]], [10, 20, 30])


def test_a_column_may_be_named_the_target(tmp_path):
    columns = table.read(written(tmp_path, WHOLE.replace("a,b", "a,target")), RULE)
    assert columns == ([[1, 3], [4, 6], [7, 9]], [2, 5, 8])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WHOLE.replace("5", "five"), r"row 3, column 'b': 'five' is no number of single precision. Mend this cell"),
        (WHOLE.replace("20", "nan"), r"row 3, column 'y': 'nan' is no number of single precision"),
        (WHOLE.replace("7", "-inf"), r"row 4, column 'a': '-inf' is no number of single precision"),
        (WHOLE.replace("7", "1e39"), r"row 4, column 'a': '1e39' is no number of single precision"),
        (WHOLE.replace("7", "1_000"), r"row 4, column 'a': '1_000' is no number of single precision"),
        (WHOLE.replace("7", ""), r"row 4, column 'a': '' is no number of single precision"),
        (WHOLE.replace("4,5,6,20", "4,5,6"), r"row 3: 3 cells, and the first row names 4 columns. Mend or take out"),
        (WHOLE.replace("4,5,6,20", "4,5,6,20,1"), r"row 3: 5 cells"),
        ("a,b,y\n", r"no rows beside the first, and 3 are needed. Give more"),
        ("a,b,y\n1,2,3\n", r"has 1 rows beside the first, and 3 are needed"),
        ("a,y\n" + "1,2\n" * 3, r"has 1 columns of features beside 'y', and 2 are needed. Give more"),
        ("", r"begins with nothing. The first row has to name the columns"),
        ("1,2,3\n" * 4, r"begins with 1, 2, 3. The first row has to name the columns"),
        ("a\tb\ty\n1\t2\t3\n", r"columns of features beside .*, and 2 are needed"),
        (b"a,b,y\n1,2,\xff\n", r"cannot be read as a table: .*0xff"),
        ('a,b,y\n1,"2,3\n', r"cannot be read as a table: unexpected end"),
    ],
)
def test_what_is_no_table_is_told_with_its_place_and_the_remedy(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(RunError, match=said) as caught:
        table.read(path, RULE)
    assert caught.value.state == "data_error" and str(path) in caught.value.message


def test_a_row_without_end_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "LONGEST_LINE", 20)
    with pytest.raises(RunError, match="cannot be read as a table: a line of more than 20 characters"):
        table.read(written(tmp_path, "a,b,y\n" + "1," * 20), RULE)


def configured(*argv):
    return resolve(parse(list(map(str, argv))), CARD, None)


def test_a_table_is_looked_for_before_anything_runs(tmp_path):
    resolved = configured("--data", written(tmp_path, WHOLE))
    assert (resolved.data, resolved.data_path) == ("csv", str((tmp_path / "table.csv").resolve()))
    assert resolved.data_workers is None and resolved.samples_per_epoch is None
    with pytest.raises(UsageError, match="no such file. Give a table"):
        configured("--data", tmp_path / "other.csv")
    with pytest.raises(UsageError, match=r"a file whose name ends in \.csv"):
        configured("--data", tmp_path)


def test_other_workloads_read_no_tables(tmp_path):
    path = written(tmp_path, WHOLE)
    with pytest.raises(UsageError, match="a file of no known format"):
        resolve(parse(["--data", str(path)]), cards.load()["resnet50"], None)


def test_sampling_is_what_it_does():
    resolved = configured()
    assert (resolved.task, resolved.batch_size) == ("sampling", CARD.defaults["cpu"]["sampling"]["batch_size"])
    assert configured("--task", "sampling") == resolved
    assert resolved.threads == 1 and configured("--threads", "3").threads == 3


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--task", "training"), "--task training: mcmc"),
        (("--task", "inference"), "--task inference: mcmc"),
        (("--epochs", "2"), "has no epochs. Give --steps or --duration"),
        (("--samples-per-epoch", "2"), "has no epochs"),
        (("--concurrency", "2"), "sampling answers no requests"),
        (("--target-loss", "2", "--steps", "9"), "sampling trains nothing"),
        (("--data-workers", "2"), "read by no worker"),
    ],
)
def test_what_sampling_has_not_is_refused(argv, said):
    with pytest.raises(UsageError, match=said):
        configured(*argv)


def test_all_are_asked_for_what_they_have(double):
    outputs = {task: double.run("--all", "--describe", "--json", *task)[1] for task in ((), ("--task", "training"))}
    tasks = {
        task: {
            description["workload"]["name"]: description["configuration"]["task"]
            for description in map(json.loads, text.splitlines())
        }
        for task, text in outputs.items()
    }
    between_ranks = {name for name, card in cards.load().items() if operation_of(card.problem) in COLLECTIVES}
    assert set(tasks[()]) == set(cards.load()) - between_ranks and tasks[()]["mcmc"] == "sampling"
    assert all(task == cards.load()[name].tasks[0] for name, task in tasks[()].items())
    assert set(tasks["--task", "training"]) == {name for name, card in cards.load().items() if "training" in card.tasks}


def test_a_list_tells_of_samples(double):
    row = next(line for line in double.run("--list")[1].splitlines() if line.startswith("mcmc "))
    assert row.split()[1:5] == ["sampling", "samples", "963", "0.964"]
