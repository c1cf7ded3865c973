from __future__ import annotations

import re

import pytest

from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import parse

HUGE = "9" * 100000


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--batch-size", "0"], "argument --batch-size: '0' is not a whole number from 1"),
        (["--batch-size", "-3"], "argument --batch-size: '-3' is not a whole number from 1"),
        (["--batch-size", "many"], "argument --batch-size: 'many' is not"),
        (["--batch-size", "1.5"], "argument --batch-size: '1.5' is not"),
        (["--batch-size", ""], "argument --batch-size: '' is not"),
        (["--batch-size", HUGE], "argument --batch-size: '99999"),
        (["--batch-size", "\u0663"], "argument --batch-size"),
        (["--concurrency", "0"], "from 1 to 1024"),
        (["--steps", "0"], "argument --steps"),
        (["--warmup-steps", "0"], "argument --warmup-steps"),
        (["--epochs", "-1"], "argument --epochs"),
        (["--seed", str(2**32)], "argument --seed"),
        (["--data-workers", "1025"], "from 0 to 1024"),
        (["--duration", "0"], "argument --duration: '0' is not a time above 0"),
        (["--duration", "nan"], "argument --duration"),
        (["--duration", "inf"], "argument --duration"),
        (["--time-limit", "-1"], "argument --time-limit"),
        (
            ["--meter", "divining-rod"],
            "argument --meter: 'divining-rod' is none of auto, none, amd, ",
        ),
        (["--meter", "rapl:"], "argument --meter: 'rapl:': a place follows"),
        (["--meter", "auto:/sys"], "only a meter has one"),
        (["--meter", "none:/sys"], "only a meter has one"),
        (["--meter-period", "0.001"], "from 0.01 to 10"),
        (["--meter-period", "nan"], "from 0.01 to 10"),
        (["--idle-seconds", "-1"], "from 0 to 3600"),
        (["--data", ""], "argument --data: the name is empty"),
        (["--precision", "fp8"], "argument --precision: invalid choice"),
        (["--task", "dreaming"], "argument --task: invalid choice"),
        (["--steps", "3", "--epochs", "1"], "not allowed with argument --steps"),
        (["--list", "--check"], "not allowed with"),
        (["--bat", "3"], "no option --bat"),
        (["resnet50", "bert"], "unexpected 'bert': name one workload, or run all of them with --all"),
        (["--batchsize", "4"], "no option --batchsize. Did you mean --batch-size?"),
        (["--batch_size=4"], "Did you mean --batch-size?"),
        (["--batch-size", "4,8"], "For several sizes: --batch-sizes"),
        (["--memory-limit", "4X"], "Write MiB, or 512M, 4G, 4GiB"),
        (["--memory-limit", "1K"], "is not a size of at least 1 MiB"),
        (["--time-limit", "1x"], "is not a time above 0"),
        (["--target-accuracy", "76"], "Write 0.76, or 76%"),
        (["--target-accuracy", "101%"], "is not a fraction above 0, up to 1"),
    ],
)
def test_bad_values_are_named(argv, said):
    with pytest.raises(UsageError) as raised:
        parse(argv)
    assert said in str(raised.value)
    assert len(str(raised.value)) < 500


def test_a_bad_value_ends_with_2_and_nothing_on_standard_output(program):
    code, output, errors = program.run("resnet50", "--batch-size", "0")
    assert (code, output) == (2, "")
    assert errors == "sifmark: argument --batch-size: '0' is not a whole number from 1 to 1000000000\n"


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
