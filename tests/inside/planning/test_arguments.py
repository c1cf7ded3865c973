from __future__ import annotations

import re

import pytest

from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import parse

HUGE = "9" * 100000


@pytest.mark.parametrize(
    "argv",
    [
        *(["--batch-size", text] for text in ("0", "-3", "many", "1.5", "", HUGE, "\u0663", "4,8")),
        *(["--concurrency", "0"], ["--steps", "0"], ["--warmup-steps", "0"], ["--epochs", "-1"]),
        *(["--seed", str(2**32)], ["--data-workers", "1025"], ["--data", ""]),
        *(["--duration", text] for text in ("0", "nan", "inf")),
        *(["--time-limit", text] for text in ("-1", "1x")),
        *(["--meter", text] for text in ("divining-rod", "rapl:", "auto:/sys", "none:/sys")),
        *(["--meter-period", text] for text in ("0.001", "nan")),
        *(["--idle-seconds", "-1"], ["--memory-limit", "4X"], ["--memory-limit", "1K"]),
        *(["--target-accuracy", text] for text in ("76", "101%")),
    ],
)
def test_a_bad_value_is_refused_by_its_option(argv):
    with pytest.raises(UsageError) as raised:
        parse(argv)
    assert raised.value.cause.startswith(argv[0]) and raised.value.code == "invalid-option"
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("argv", "code", "proposed"),
    [
        (["--precision", "fp12"], "unknown-name", "fp16"),
        (["--task", "trainin"], "unknown-name", "training"),
        (["--strategy", "zero4"], "unknown-name", "zero3"),
        (["--batchsize", "4"], "unknown-option", "--batch-size"),
        (["--batch_size=4"], "unknown-option", "--batch-size"),
        (["--bat", "3"], "unknown-option", ""),
        (["--batch-size", "4,8"], "invalid-option", "--batch-sizes"),
        (["--target-accuracy", "76"], "invalid-option", "76%"),
        (["--steps", "3", "--epochs", "1"], "invalid-option", "one of them"),
        (["--list", "--check"], "invalid-option", "one of them"),
        (["--steps"], "argument-missing", "--steps N"),
        (["resnet50", "bert"], "invalid-option", "--all"),
    ],
)
def test_a_mistake_has_a_code_and_a_remedy(argv, code, proposed):
    with pytest.raises(UsageError) as raised:
        parse(argv)
    assert raised.value.code == code and proposed in raised.value.remedy


def test_a_bad_value_ends_with_2_and_nothing_on_standard_output(program):
    code, output, errors = program.run("resnet50", "--precision", "fp12")
    assert (code, output) == (2, "")
    first, remedy = errors.splitlines()
    assert first.startswith("error: ") and first.endswith(" [unknown-name]") and remedy.startswith("  remedy: ")


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--memory-limit", "4096"], "memory_limit", 4096),
        (["--memory-limit", "4G"], "memory_limit", 4096),
        (["--memory-limit", "4GiB"], "memory_limit", 4096),
        (["--memory-limit", "4GB"], "memory_limit", 3814),
        (["--memory-limit", "512M"], "memory_limit", 512),
        (["--memory-limit", "1.5T"], "memory_limit", 1536 * 1024),
        (["--time-limit", "90"], "time_limit", 90.0),
        (["--time-limit", "90s"], "time_limit", 90.0),
        (["--time-limit", "30m"], "time_limit", 1800.0),
        (["--time-limit", "1.5h"], "time_limit", 5400.0),
        (["--time-limit", "2d"], "time_limit", 172800.0),
        (["--time-limit", "00:30:00"], "time_limit", 1800.0),
        (["--time-limit", "30:00"], "time_limit", 1800.0),
        (["--time-limit", "1-02:00:00"], "time_limit", 93600.0),
        (["--duration", "1e3"], "duration", 1000.0),
        (["--target-accuracy", "76%"], "target_accuracy", 0.76),
        (["--target-accuracy", "0.76"], "target_accuracy", 0.76),
        (["--precision", "FP16"], "precision", "fp16"),
        (["--task", "train"], "task", "training"),
        (["--task", "Inference"], "task", "inference"),
    ],
)
def test_values_are_written_as_people_do(argv, name, value):
    assert getattr(parse(argv), name) == value


def test_the_help_has_groups_and_exit_codes(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for title in ("what to run", "how long", "batch and memory", "data", "power", "output", "exit codes"):
        assert f"\n{title}:\n" in text
    codes = [int(code) for code in re.findall(r"^ +(\d+)  ", text.partition("exit codes:\n")[2], re.MULTILINE)]
    assert codes == sorted(codes) and len(codes) == len(set(codes))


def test_what_was_not_said_is_none():
    options = parse([])
    assert (options.workload, options.batch_size, options.verb, options.data) == (None, None, "run", "synthetic")
    assert parse(["x", "--batch-size", "7", "--describe"]).batch_size == 7
