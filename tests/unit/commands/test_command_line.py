"""What every command has in common, whatever it does: help, suggestions, errors with codes and formats."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sifmark.commands import framework
from sifmark.commands.command_line import GROUPS, main
from sifmark.commands.failures import error_lines, run_body
from sifmark.commands.framework import (
    COMMANDS,
    argument,
    bases_option,
    command,
    engine_option,
    flag,
    key_option,
    option,
)
from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.core.terminal import configure, output

RESULT = paths.SCHEMAS / "examples" / "result-1.2" / "training.json"


def typed(program: str, folder: Path, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of `sifmark`, or of `inv` as in a clone."""
    argv = [sys.executable, "-m", "invoke", "--search-root", str(paths.ROOT)] if program == "inv" else None
    argv = [*(argv or [sys.executable, "-m", "sifmark"]), *words]
    environment = {**os.environ, "SIFMARK_DIST": str(folder / "dist"), "SIFMARK_ENGINE": "apptainer", "COLUMNS": "80"}
    environment |= {"PYTHONPATH": str(paths.ROOT), **changes}
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=folder, env=environment)


@pytest.fixture(autouse=True)
def default_mode() -> None:
    configure()


@pytest.mark.parametrize(("switch", "kept"), [("", True), ("1", False)])
def test_what_commands_import_is_compiled_once_where_python_may(switch: str, kept: bool, tmp_path: Path) -> None:
    typed("inv", tmp_path, "list", PYTHONPYCACHEPREFIX=str(tmp_path / "compiled"), PYTHONDONTWRITEBYTECODE=switch)
    assert any((tmp_path / "compiled").rglob("settings.*.pyc")) is kept


def test_every_command_is_listed_once() -> None:
    listed = [command.name for commands in GROUPS.values() for command in commands]
    assert sorted(map(str, listed)) == sorted(COMMANDS)
    assert listed[:8] == ["list", "build", "run", "verify", "compare", "meter", "doctor", "clean"]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: sifmark {name} ") and str(COMMANDS[name].short_help) in " ".join(text.split())
    assert f"Example: sifmark {COMMANDS[name].example}\n" in text
    assert max(map(len, text.splitlines())) <= 80
    for parameter in COMMANDS[name].params:
        if not getattr(parameter, "hidden", False):
            assert parameter.help, f"{parameter.name} has no help"
            assert {word for word in parameter.opts if len(word) == 2} <= {"-j", "-n", "-o", "-q", "-v"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_can_be_parsed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = COMMANDS[name].example.split()
    assert words[0] == name
    monkeypatch.setattr(framework, "run_body", lambda body, as_json: 7)
    assert main(words) == 7


@pytest.mark.parametrize("words", [["--help"], ["help"], ["-h"], []])
def test_the_list_of_commands_fits_a_screen(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 80
    assert all(f"\n  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("words", [["study"], ["study", "--help"], ["study", "-h"], ["help", "study"]])
def test_a_group_lists_its_commands(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    text = capsys.readouterr().out
    shown = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert shown == [name for name in COMMANDS if name.startswith("study.")]


@pytest.mark.parametrize("name", [name for name in COMMANDS if "." in name])
def test_a_blank_may_take_the_place_of_the_dot(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    group, _, short = name.partition(".")
    assert main([name, "--help"]) == 0
    with_dot = capsys.readouterr().out
    assert main([group, short, "--help"]) == 0
    assert capsys.readouterr().out == with_dot
    monkeypatch.setattr(framework, "run_body", lambda body, as_json: 7)
    assert main([group, short, *COMMANDS[name].example.split()[1:]]) == 7


def test_help_loads_nothing_that_only_commands_need() -> None:
    program = "import sys; from sifmark.commands.command_line import main; main(['--help']); main(['build', '--help'])"
    program += "; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stderr.split() if name.startswith("sifmark.")}
    assert {name.split(".")[1] for name in loaded} == {"commands", "core"}
    assert not {"rich", "jsonschema", "requests", "docker"} & {name.split(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize(
    ("words", "same"),
    [
        pytest.param("build --help", "build --help", marks=pytest.mark.full),
        ("help build", "build --help"),
        ("build --dry-run no-such-image", "build -n no-such-image"),
        ("bild", "bild"),
        pytest.param("results.validate RESULT RESULT", "results.validate RESULT RESULT", marks=pytest.mark.full),
        ("results.validate RESULT --json", "results.validate --format json RESULT"),
        pytest.param("run resnet50-cpu --steps 3", "run resnet50-cpu --steps 3", marks=pytest.mark.full),
    ],
)
def test_inv_behaves_as_sifmark_does(words: str, same: str, tmp_path: Path) -> None:
    ours = typed("sifmark", tmp_path, *same.replace("RESULT", str(RESULT)).split())
    theirs = typed("inv", tmp_path, *words.replace("RESULT", str(RESULT)).split())
    assert (theirs.returncode, theirs.stdout, theirs.stderr) == (ours.returncode, ours.stdout, ours.stderr)


def test_inv_lists_and_completes_the_commands(tmp_path: Path) -> None:
    listed = typed("sifmark", tmp_path, "--help").stdout
    assert typed("inv", tmp_path).stdout == typed("inv", tmp_path, "--list").stdout == listed
    assert sorted(typed("inv", tmp_path, "--complete", "--", "inv").stdout.split()) == sorted(COMMANDS)
    assert typed("inv", tmp_path, "--help", "build").stdout.startswith("Usage: sifmark build ")


@pytest.mark.parametrize(
    ("words", "status", "code", "message"),
    [
        ("bild", 2, "unknown-name", "remedy: did you mean build?"),
        ("lsit", 2, "unknown-name", "did you mean list"),
        ("export", 2, "unknown-name", "did you mean results.export or study.export?"),
        ("pull cpu", 2, "unknown-name", "did you mean registry.pull?"),
        ("registry.pull", 2, "argument-missing", "for example: sifmark registry.pull cpu"),
        ("registry pul cpu", 2, "unknown-name", "did you mean registry.pull"),
        ("study.init --systems a:cpu", 2, "argument-missing", "--workloads is missing"),
        ("registry.pul cpu", 2, "unknown-name", "did you mean registry.pull"),
        ("showw", 2, "unknown-name", "did you mean results.show?"),
        ("build --foce cpu", 2, "unknown-option", "did you mean --force? see sifmark build --help"),
        ("build cpu --jobs x --dry-run", 2, "invalid-option", "'x' is not a valid integer"),
        ("build cpu --jobs 0 --dry-run", 2, "invalid-option", "0 is not in the range x>=1"),
        (
            "build",
            2,
            "argument-missing",
            "remedy: sifmark build cpu, sifmark build 'resnet50-*', or sifmark build --all",
        ),
        ("build cpu --all", 2, "invalid-option", "--all and 'cpu' were both given"),
        ("build cpu --engine podman", 2, "invalid-option", "'podman' is not one of 'apptainer', 'docker'"),
        ("compare", 2, "argument-missing", "for example: sifmark compare results/"),
        ("run", 2, "argument-missing", "for example: sifmark run resnet50-cpu"),
        ("run resnet50-cpu --steps 3", 2, "unknown-option", "sifmark run resnet50-cpu -- --steps 3"),
        ("image.audit cpu --fail", 2, "unknown-option", "sifmark image.audit cpu -- --fail"),
        ("registry.list --registry ./nowhere", 1, "", "nowhere is no folder"),
        ("image.reproduce cpu", 1, "image-not-built", "remedy: sifmark build cpu, or sifmark registry.pull cpu"),
        ("doctor --image cpu", 1, "image-not-built", "no image_compression-cpu.sif in"),
        ("recipe.fetch here --name resnet50-cpu", 2, "unknown-name", "no recipe 'resnet50-cpu'"),
        ("recipe.pin --check --update", 2, "invalid-option", "--check and --update: choose one"),
        ("results.trace RESULT --key nowhere.pub", 2, "", "there is no key nowhere.pub"),
        ("results.trace RESULT --image nowhere.sif", 1, "file-missing", "there is no file nowhere.sif"),
        ("results.validate nowhere", 2, "result-missing", "no result at nowhere"),
        ("compare RESULT --by nowhere", 2, "unknown-name", "no result has the field 'nowhere'"),
        ("compare RESULT --format xml", 2, "invalid-option", "'xml' is not one of 'table', 'json', 'csv', 'markdown'"),
        ("build cpuu", 2, "unknown-name", "did you mean the recipe cpu or cpu_tf?"),
        ("build resnet50", 2, "unknown-name", "for example resnet50-cpu, "),
        (
            "build resnet50-h100",
            2,
            "unknown-name",
            "did you mean resnet50-cuda or resnet50-cuda_tf or resnet50-cuda_vllm?",
        ),
        ("build nvidia", 2, "unknown-name", "did you mean cuda or cuda_tf or cuda_vllm?"),
        ("build *-gpu", 2, "unknown-name", "recipes: cpu, cpu_serving, cpu_tf, cpu_vllm, cuda"),
        ("build resnet5-cpu", 2, "unknown-name", "did you mean resnet50-cpu"),
    ],
)
def test_an_error_has_its_cause_code_and_remedy(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    status: int,
    code: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMARK_DIST", str(tmp_path / "dist"))
    monkeypatch.setenv("SIFMARK_ENGINE", "apptainer")
    returned = main(words.replace("RESULT", str(RESULT)).split())
    errors = capsys.readouterr().err.splitlines()
    first = next(line for line in errors if line.startswith("error: "))
    text = "\n".join(errors)
    assert returned == status and message in text and "remedy: " in text, text
    assert first.endswith(f" [{code}]" if code else "]"), first


def test_an_error_is_json_for_programs(tmp_path: Path) -> None:
    done = typed("sifmark", tmp_path, "image.reproduce", "cpu", "--json")
    assert json.loads(done.stdout) == {
        "error": {
            "code": "image-not-built",
            "cause": "cpu is not built",
            "remedy": "sifmark build cpu, or sifmark registry.pull cpu",
        }
    }
    for words in (["compare", "nowhere", "--format", "json"], ["compare", "--json", "nowhere"]):
        assert json.loads(typed("sifmark", tmp_path, *words).stdout)["error"]["code"] == "result-missing"
    done = typed("sifmark", tmp_path, "compare", "nowhere", "--json", "--byy", "x")
    assert json.loads(done.stdout)["error"]["code"] == "unknown-option"


def test_a_failure_is_printed_as_json_only_if_nothing_was_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def fails_late() -> None:
        output("[]")
        raise SifmarkError("cause", "remedy", code="file-missing")

    def fails_at_once() -> None:
        raise UsageError("cause\nand its\x1b[2J log", code="invalid-option")

    assert run_body(fails_late, as_json=True) == 1
    printed = capsys.readouterr()
    assert printed.out == "[]\n" and printed.err == "error: cause [file-missing]\n  remedy: remedy\n"
    assert run_body(fails_at_once, as_json=True) == 2
    printed = capsys.readouterr()
    assert printed.err == "error: cause [invalid-option]\nand its\\x1b[2J log\n"
    assert json.loads(printed.out)["error"]["remedy"] is None


def test_the_exit_code_says_how_a_command_ended(capsys: pytest.CaptureFixture[str]) -> None:
    def ends_with(error: BaseException) -> int:
        def body() -> None:
            raise error

        return run_body(body, as_json=False)

    assert ends_with(FileNotFoundError(2, "No such file or directory", "x")) == 1
    assert "[system-error]" in capsys.readouterr().err
    assert ends_with(KeyboardInterrupt()) == 130
    assert ends_with(BrokenPipeError()) == 141


def test_a_traceback_is_a_detail(capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> None:
        raise SifmarkError("cause", code="file-missing")

    run_body(body, as_json=False)
    assert "Traceback" not in capsys.readouterr().err
    configure(verbose=True)
    run_body(body, as_json=False)
    assert "Traceback" in capsys.readouterr().err


def test_options_become_values_of_the_body_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(framework, "COMMANDS", {})

    @command("group.task")
    @argument("names", "Names.", nargs=-1)
    @option("--count", "A number.", least=1)
    @flag("--dry-run", "A flag.")
    @key_option
    @engine_option
    @bases_option
    def task(
        settings: Settings, names: Sequence[str], count: int = 7, dry_run: bool = False, key: Sequence[str] = ()
    ) -> None:
        given.update(settings=settings, names=names, count=count, dry_run=dry_run, key=key)

    words = ["a", "b", "--engine", "docker", "--bases", "stand-in", "--key", "a.pub", "--dry-run", "--key", "b.pub"]
    assert framework.COMMANDS["group.task"].main(words, standalone_mode=False) == 0
    settings = given.pop("settings")
    assert isinstance(settings, Settings)
    assert (settings.engine, settings.bases, settings.keys) == ("docker", "stand-in", ("a.pub", "b.pub"))
    assert given == {"names": ("a", "b"), "count": 7, "dry_run": True, "key": ("a.pub", "b.pub")}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("bui", "build"),
        ("build resnet50-c", "resnet50-cpu"),
        ("list cp", "cpu_tf"),
        ("build --for", "--force"),
        ("study.plan qui", "quick"),
        ("study plan qui", "quick"),
        ("study pl", "plan"),
    ],
)
def test_a_shell_completes_commands_options_and_names(words: str, offered: str, tmp_path: Path) -> None:
    variables = {"_SIFMARK_COMPLETE": "bash_complete", "COMP_WORDS": f"sifmark {words}"}
    done = typed("sifmark", tmp_path, **variables, COMP_CWORD=str(len(words.split())))
    assert f"plain,{offered}" in done.stdout.splitlines(), done.stdout


def test_an_error_has_its_code_in_the_first_line() -> None:
    assert error_lines(SifmarkError("a\nb", "c\nd", code="file-missing")) == [
        *("error: a [file-missing]", "b"),
        *("  remedy: c", "d"),
    ]
