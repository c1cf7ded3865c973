"""Settings: the file, the variables, options, and what is refused."""

import json
import os
from dataclasses import fields
from pathlib import Path

import pytest
from unit.refusals import refused

from sifmark.core import paths
from sifmark.core.environment import tool_environment
from sifmark.core.errors import UsageError
from sifmark.core.schemas import without_passwords
from sifmark.core.settings import Settings, load_settings, with_options


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("SIFMARK_SETTINGS", "SIFMARK_CACHE", "SIFMARK_DIST", "SIFMARK_BASES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_defaults(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert load_settings() == Settings(cache=Path("/somewhere/sifmark"), dist=here / "dist")


def test_options_of_a_command_line_are_checked(here: Path) -> None:
    assert with_options(load_settings(), bases="stand-in", compression=None).bases == "stand-in"
    with refused(UsageError, "invalid-option", "bases"):
        with_options(load_settings(), bases="standin")


def test_a_shell_s_wishes_for_containers_do_not_reach_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("APPTAINER_BIND", "APPTAINERENV_PYTHONPATH", "SINGULARITY_OVERLAYIMAGE", "APPTAINER_CACHEDIR"):
        monkeypatch.setenv(name, "x")
    environment = tool_environment(EXTRA="y")
    assert "APPTAINER_CACHEDIR" in environment
    assert environment["EXTRA"] == "y"
    assert not {"APPTAINER_BIND", "APPTAINERENV_PYTHONPATH", "SINGULARITY_OVERLAYIMAGE"} & set(environment)


def test_the_file_and_then_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "sifmark.toml").write_text('bases = "stand-in"\ndist = "out"\n')
    assert (load_settings().bases, load_settings().dist) == ("stand-in", here / "out")
    monkeypatch.setenv("SIFMARK_BASES", "pinned")
    assert load_settings().bases == "pinned"


def test_a_setting_says_who_chose_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "sifmark.toml").write_text('bases = "stand-in"\ndist = "out"\n')
    monkeypatch.setenv("SIFMARK_DIST", "elsewhere")
    site = load_settings(engine="docker")
    assert site.origin("bases") == "bases in sifmark.toml" and site.origin("cache") == "the default of cache"
    assert (site.origin("dist"), site.origin("engine")) == ("SIFMARK_DIST", "--engine")


def test_paths_of_a_file_start_at_its_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("cache", "dist", "sources", "baselines", "results", "results_key")
    (here / "etc").mkdir()
    (here / "etc" / "sifmark.toml").write_text("".join(f'{name} = "of/{name}"\n' for name in names))
    monkeypatch.setenv("SIFMARK_SETTINGS", "etc/sifmark.toml")
    site = load_settings()
    assert {name: getattr(site, name) for name in names} == {name: here / "etc" / "of" / name for name in names}


def test_an_unknown_setting_brings_its_line_and_the_nearest(here: Path) -> None:
    (here / "sifmark.toml").write_text("# ours\nbase = 3\n")
    with refused(UsageError, "settings-invalid", "sifmark.toml:2: ") as caught:
        load_settings()
    assert "bases" in caught.value.remedy


def test_keys_of_a_file_lie_beside_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever works in a folder with a key of the same name trusts the site's all the same."""
    (here / "etc").mkdir()
    (here / "etc" / "sifmark.toml").write_text(f'keys = ["site.pub", "/other/site.pub", "{"A" * 40}"]\n')
    monkeypatch.setenv("SIFMARK_SETTINGS", "etc/sifmark.toml")
    assert load_settings().keys == (str(here / "etc" / "site.pub"), "/other/site.pub", "A" * 40)
    (here / "etc" / "sifmark.toml").write_text('keys = ["~nobody_of_this_name/site.pub"]\n')
    with refused(UsageError, "settings-invalid", "keys: ~nobody_of_this_name"):
        load_settings()


def test_variables_that_are_no_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIFMARK_KEYS", f"a.pub{os.pathsep}b.pub")
    monkeypatch.setenv("SIFMARK_PRIVATE_REGISTRIES", "a.example:5000, b.example")
    monkeypatch.setenv("SIFMARK_CACHE_LIMIT", "0.5")
    site = load_settings()
    assert site.keys == ("a.pub", "b.pub")
    assert site.private_registries == ("a.example:5000", "b.example")
    assert site.cache_limit == 0.5
    monkeypatch.setenv("SIFMARK_CACHE_LIMIT", "much")
    with refused(UsageError, "settings-invalid", "cache_limit: 'much'"):
        load_settings()


@pytest.mark.parametrize("text", ["cache_limit = nan", "cache_limit = inf", "time_limit = inf"])
def test_a_number_that_is_none_is_no_setting(here: Path, text: str) -> None:
    (here / "sifmark.toml").write_text(f"{text}\n")
    with refused(UsageError, "settings-invalid", text.split()[0]):
        load_settings()


@pytest.mark.parametrize("text", ['bases = "mine"', "colour = 1", "time_limit = 0", 'mirrors = "x"', "= 1"])
def test_bad_settings_name_the_file(here: Path, text: str) -> None:
    (here / "sifmark.toml").write_text(text)
    with refused(UsageError, "settings-invalid", "sifmark.toml"):
        load_settings()


@pytest.mark.parametrize(
    "login",
    [
        "user:hunter2",
        "user:p@ss/hunter2",
        "user:p'ss/w@rd hunter2",
        "user:'p\"ss\\hunter2",
        "user:p://ss@hunter2",
        "user:hunter2" * 40,  # beyond where the message is cut
        "hunter2",  # a token alone
    ],
)
@pytest.mark.parametrize("scheme", ["", "https://"])
@pytest.mark.parametrize("setting", ["registry", "private_registries", "mirrors", "engine"])
def test_a_login_of_any_characters_is_not_shown(here: Path, setting: str, scheme: str, login: str) -> None:
    address = json.dumps(f"{scheme}{login}@host.example/x y")  # as TOML writes a text
    key = {"private_registries": f"[{address}]", "mirrors": f"{{{address} = {address}}}"}.get(setting, address)
    (here / "sifmark.toml").write_text(f"{setting} = {key}\n")
    with pytest.raises(UsageError) as caught:
        load_settings()
    text = str(caught.value)
    assert f"{scheme}***@host.example/x y" in text
    assert not [part for part in ("hunter2", "user", "ss", "rd") if part in caught.value.cause.partition("***@")[0]]
    assert "hunter2" not in text and "user:" not in text


@pytest.mark.parametrize(
    "text",
    [
        '"user:hunter2@host.example" = 1',  # a key
        """engine = ["'a@b'", "x'a@b'hunter2@host.example"]""",  # where one holds what looks like another
        """engine = ["a@b", "x'a@b'hunter2@host.example"]""",
    ],
)
def test_a_login_anywhere_in_a_value_is_not_shown(here: Path, text: str) -> None:
    (here / "sifmark.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_settings()
    assert "***@host.example" in caught.value.cause and "hunter2" not in str(caught.value)


def test_a_digest_is_no_login() -> None:
    image = f"registry.example/cpu@sha256:{'0' * 64}"
    assert without_passwords(image) == image and without_passwords(f"me:secret@{image}") == f"***@{image}"


def test_a_bad_variable_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIFMARK_BASES", "mine")
    with refused(UsageError, "settings-invalid", "SIFMARK_"):
        load_settings()


def test_the_schema_has_every_setting_and_no_other() -> None:
    schema = json.loads((paths.SCHEMAS / "settings-1.0.json").read_text())
    assert {setting.name for setting in fields(Settings)} - {"origins"} == set(schema["properties"])


def test_another_process_gets_the_same_settings(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = load_settings(
        cache="c", dist="d", bases="stand-in", engine="docker", compression="xz", sources="s", cache_limit="1.5",
        builder="https://x.example/", keys=os.pathsep.join(("a.pub", "b.pub")), registry="r.example/x",
        private_registries="a.example,b.example", results_key="k.pem",
    )  # fmt: skip
    for name, value in site.environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings() == site
    assert set(site.environment()) == {
        f"SIFMARK_{name.upper()}"
        for name in {setting.name for setting in fields(Settings)}
        - {"origins", "mirrors", "wheel_indexes", "time_limit", "require_signature", "slurm", "energy", "prices"}
    }
