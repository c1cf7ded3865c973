"""A child that lies: whatever it reports, its document is valid and does not say that the run completed."""

from __future__ import annotations

import json

import pytest

from entrypoints.contract import cards
from entrypoints.contract.messages import Ended
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.results.measurement import fold
from entrypoints.results.outcome import Ending
from entrypoints.runs import execute, supervise
from entrypoints.runs.evaluation import evaluated
from entrypoints.runs.group import Rank

RUN = ("resnet50", "--steps", "60", "--warmup-steps", "2", "--batch-size", "3")
SOFTWARE = json.dumps(["Software", ["2.0", {}]])


def message_of(document):
    """The message of a document, whose numbers are not those of a run."""
    status = document["status"]
    assert (status["state"], status["exit_code"]) == ("inconsistent", 4)
    return status["message"]


@pytest.mark.parametrize(
    ("fault", "rule"), [("tenfold", "units-are-steps-times-batch"), ("early", "steps-are-those-asked-for")]
)
def test_numbers_that_contradict_each_other_name_the_rule(double, fault, rule):
    """All that this child says has the right form and order."""
    assert f"[{rule}]" in message_of(double.result(*RUN, fault=fault))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("garbage", "JSONDecodeError"),
        ('["Applause", []]', "KeyError: 'Applause'"),
        ('["Step", [1]]', "Step has 5 to 13 fields"),
        ('["Step", [-1.0, 0.0, 4, 1, 2.5]]', "Step.seconds is no float"),
        (SOFTWARE, "Software twice"),
        ('["Ended", [0.0]]', "the end at 0.000 s"),
        ('["Phase", ["import", 0.0]]', "the phase import after steady"),
    ],
)
def test_what_is_no_message_or_comes_out_of_turn_names_the_protocol(double, line, said):
    document = double.result(*RUN, fault="says", DOUBLE_SAYS=line)
    assert message_of(document).startswith(
        f"the workload's process sent something other than its protocol allows: {said}"
    )
    assert document["steps"]["count"] == 3, "what was said before is kept"


def test_a_device_that_no_schema_knows_is_no_measurement(double):
    document = double.result(*RUN, fault="galaxy")
    assert message_of(document).startswith("$.accelerator") and "galaxy" in message_of(document)
    assert document["steps"]["count"] == 0 and "count" not in document["accelerator"]


def test_a_line_that_is_too_long_is_not_waited_for(double):
    message = message_of(double.result(*RUN, fault="long_line"))
    assert f"a line of more than {supervise.LONGEST_LINE >> 20} MiB" in message


def test_steps_without_any_length_cannot_be_evaluated(double):
    """Their messages keep the protocol, and the throughput would be a division by 0."""
    code, output, errors = double.run(*RUN, fault="timeless")
    document = json.loads(output)
    message = message_of(document)
    assert code == 4 and "Traceback" not in errors
    assert "cannot be evaluated: ZeroDivisionError in throughput_interval" in message
    assert document["steps"]["count"] == 0 and document["metrics"]["throughput"]["value"] is None


@pytest.mark.parametrize("error", [ZeroDivisionError("by 0"), KeyError("steady"), TypeError("no"), ValueError("none")])
def test_messages_that_cannot_be_folded_are_no_measurement(monkeypatch, error):
    def refusing(messages, *others, **settings):
        if messages:
            raise error
        return fold(messages, *others, **settings)

    ended = Ending(returncode=0, stopped_by=None, signal=None, oom_killed=False)
    monkeypatch.setattr(execute, "fold", refusing)
    monkeypatch.setattr(execute, "converse", lambda *_, **__: [Rank([Ended(1.0)], ended)])
    card = cards.load()["resnet50"]
    resolved = resolve(parse(["resnet50", "--smoke", "--meter", "none"]), card, None)
    executed = execute.execute(card, resolved, supervise.Orders.__new__(supervise.Orders))
    assert executed.outcome.state == "inconsistent"
    assert f"{type(error).__name__} in refusing: {error}" in executed.outcome.message
    assert executed.measurement == fold([], card.problem["unit"], "training")


@pytest.mark.parametrize("error", [AttributeError("ours"), OSError("the host's"), MemoryError()])
def test_what_no_number_provokes_is_no_lie(error):
    def failing():
        raise error

    with pytest.raises(type(error)):
        evaluated(failing, lambda outcome: outcome)


def test_a_defect_that_needs_no_number_is_no_lie():
    with pytest.raises(ZeroDivisionError):
        evaluated(lambda: 1 / 0, lambda _: 1 / 0)
