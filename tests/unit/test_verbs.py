"""What every verb answers, whatever it does."""

import pytest

from sifmark.cli import program

VERBS = sorted(program.namespace.task_names)


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_had_or_told_where_it_is(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    program.run(["sifmark", verb, "--help"], exit=False)
    answer = "".join(capsys.readouterr())
    assert f"Usage: sifmark [--core-opts] {verb}" in answer or f"inv --help {verb}" in answer
    program.run(["sifmark", "--help", verb], exit=False)
    assert f"Usage: sifmark [--core-opts] {verb}" in capsys.readouterr().out
