from __future__ import annotations

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
        (["--duration", "0"], "argument --duration: '0' is not a number of seconds above 0"),
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
        (["--bat", "3"], "unrecognized arguments"),
        (["resnet50", "bert"], "unrecognized arguments"),
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


def test_what_was_not_said_is_none():
    options = parse([])
    assert (options.workload, options.batch_size, options.verb, options.data) == (None, None, "run", "synthetic")
    assert parse(["x", "--batch-size", "7", "--describe"]).batch_size == 7
