"""What Apptainer says of the signers of a SIF, without Apptainer."""

import json

import pytest
from unit.refusals import refused

from sifmark.core.errors import SifmarkError
from sifmark.engines.apptainer import signature


def answer(*signers: tuple[str, bool, bool]) -> str:
    """What `apptainer verify --json` prints: fingerprint, and whether the key and what it signed are as they should."""
    entries = [{"Signer": {"Fingerprint": name, "KeyCheck": key, "DataCheck": data}} for name, key, data in signers]
    return json.dumps({"SignerKeys": entries})


@pytest.mark.parametrize(("key", "data", "fingerprint"), [(True, True, "ab12"), (True, False, ""), (False, True, "")])
def test_a_signature_that_is_not_valid_is_by_nobody(key: bool, data: bool, fingerprint: str) -> None:
    assert signature._signers(answer(("AB12", key, data))) == {fingerprint}


def test_all_signers_count() -> None:
    assert signature._signers(answer(("AB12", True, True), ("CD34", True, True))) == {"ab12", "cd34"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"SignerKeys": [{}]}'])
def test_an_answer_in_another_form_is_no_signature(text: str) -> None:
    with refused(SifmarkError, "engine-answer-unknown"):
        signature._signers(text)
