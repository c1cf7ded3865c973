"""Which key signs, and which engine's publisher is asked."""

from pathlib import Path

import pytest

from sifmark.commands.image import sign, signing_key
from sifmark.core.errors import UsageError
from sifmark.core.settings import Settings
from sifmark.publish import publisher
from sifmark.publish.reports import SigningKey, SignReport


@pytest.mark.parametrize(
    ("key", "pgp", "code"),
    [
        ("", "", "invalid-option"),
        ("key.pem", "0", "invalid-option"),
        ("", "first", "invalid-option"),
        ("nowhere.pem", "", "key-unusable"),
    ],
)
def test_which_key_is_to_sign_must_be_clear(key: str, pgp: str, code: str) -> None:
    with pytest.raises(UsageError) as error:
        signing_key(key, pgp)
    assert error.value.code == code


def test_a_public_key_cannot_sign(tmp_path: Path) -> None:
    (tmp_path / "site.pub").write_text("-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n")
    with pytest.raises(UsageError, match="site.pub is a public key; signing needs the private one") as error:
        signing_key(str(tmp_path / "site.pub"), "")
    assert error.value.code == "key-unusable"


def test_keys_by_file_and_by_number(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("a key")
    assert signing_key(str(tmp_path / "key.pem"), "") == SigningKey(tmp_path / "key.pem")
    assert signing_key("", "0") == SigningKey(None, "0")


@pytest.mark.parametrize("published", [True, False])
def test_a_reference_is_an_answer_and_a_file_is_progress(
    site: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], published: bool
) -> None:
    class Publisher:
        @staticmethod
        def sign(*_: object) -> SignReport:
            return SignReport("x", published, "x: signed")

    monkeypatch.setattr(publisher, "publisher_of", lambda _: Publisher)
    sign("cpu", site, pgp="0")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (("x: signed\n", "") if published else ("", "x: signed\n"))
