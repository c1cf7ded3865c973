"""sifmark run with repeats: who is run when, how often, and what is said of it. Images are a script."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import documents
import pytest
from unit.fakes import FakeEngine, settings_for
from unit.refusals import refused

import sifmark
from sifmark.commands.images import run
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.core.signals import unwind_on_signals
from sifmark.doctor import load
from sifmark.engines.library import ResultWatch

# Writes the next result of its site into the folder of its results, and one of another command beside it.
IMAGE = """
import json, os, sys
words = sys.argv[1:]
options = {name[2:]: value for name, value in zip(words, words[1:]) if name.startswith("--")}
with open("ledger", "a") as ledger:
    ledger.write(options["site"] + "\\n")
with open("ledger") as ledger:
    number = ledger.read().split().count(options["site"])
with open(options["site"] + "-" + str(number)) as stream:
    document = json.load(stream)
document["provenance"]["command"] = words
for name, document["provenance"]["command"] in (("own", words), ("of others", ["--site", "other"])):
    document["id"] = document["id"] if name == "own" else "f" + document["id"][1:]
    if name == "own" or number == 1:
        with open(os.path.join(options["output"], options["site"] + str(number) + name + ".json"), "w") as stream:
            json.dump(document, stream)
sys.exit(document["status"]["exit_code"])
"""


class Images(FakeEngine):
    """An engine whose images run that script, also as programs of their own."""

    def command(self, address: str, verb: str, arguments: Sequence[str], options: Sequence[str]) -> list[str]:
        self.commands.append((address, verb, arguments, options))
        return [sys.executable, "-S", "-c", IMAGE, *arguments]


@pytest.fixture
def engine(any_command: None, site: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Images:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(load, "SAMPLE", 0.0)
    engine = Images(site)
    for name in ("resnet50-cpu", "resnet50-cpu_tf"):
        engine.add(name)
    return engine


@pytest.fixture
def settings(engine: Images, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return replace(settings_for(engine, monkeypatch), results=Path.cwd() / "kept")


def write(site: str, throughputs: Sequence[float], **changes: Any) -> None:
    """Let the runs of a site measure this."""
    for number, value in enumerate(throughputs, start=1):
        metric = {"value": value, "unit": "images/s"}
        identity = f"{site[0].encode().hex()}40b341-d431-4cb2-8ff9-1668{number:08x}"
        document = documents.valid(id=identity, metrics__throughput=metric, site=site, **changes)
        Path(f"{site}-{number}").write_text(json.dumps(document))


def order() -> list[str]:
    """The sites of the runs that were done, in their order."""
    return Path("ledger").read_text().split()


def ends(start: Callable[[], None]) -> int:
    """The exit code with which the command ends."""
    with pytest.raises(SystemExit) as ended:
        start()
    return int(ended.value.code or 0)


BOTH = ("--site alpha", "--site beta")
STEADY, NOISY = [100.0, 100.5, 99.7, 100.2, 99.9, 100.1] * 5, [100.0, 130.0, 80.0, 115.0, 90.0] * 6


def test_variants_take_turns_forwards_and_backwards(settings: Settings) -> None:
    for site in ("alpha", "beta"):
        write(site, STEADY)
    assert ends(lambda: run("resnet50-cpu", settings, ["--output", "out/"], "3", variant=BOTH, interleave=True)) == 0
    assert order() == ["alpha", "beta", "beta", "alpha", "alpha", "beta"]
    assert len(list(Path("out").glob("*own.json"))) == 6


def test_images_take_turns_too(settings: Settings, engine: Images) -> None:
    write("alpha", STEADY)
    words = ["resnet50-cpu_tf", "--site", "alpha"]
    assert ends(lambda: run("resnet50-cpu", settings, words, "2", interleave=True)) == 0
    started = [address for address, *_ in engine.commands]
    assert started == ["fake:resnet50-cpu", "fake:resnet50-cpu_tf", "fake:resnet50-cpu_tf", "fake:resnet50-cpu"]
    assert {tuple(words)[-2:] for *_, words, _ in engine.commands} == {("--output", "kept/")}


def test_without_turns_each_repeats_itself(settings: Settings, engine: Images) -> None:
    for site in ("alpha", "beta"):
        write(site, STEADY)
    assert ends(lambda: run("resnet50-cpu", settings, ["--output", "out/"], "3", variant=BOTH)) == 0
    assert [tuple(arguments)[-2:] for *_, arguments, _ in engine.commands] == [("--repeat", "3")] * 2
    assert order() == ["alpha", "beta"]


def test_repeats_end_when_all_means_are_known(settings: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    write("alpha", STEADY)
    write("beta", [100.0, 110.0, 90.0, *STEADY])
    words = ["--output", "out/"]
    assert ends(lambda: run("resnet50-cpu", settings, words, "auto", "5%", variant=BOTH, interleave=True)) == 0
    done = order()
    assert done.count("alpha") == done.count("beta") and 5 < done.count("beta") < 30
    assert f"n={done.count('beta')}" in capfd.readouterr().err


def test_one_that_is_known_at_once_is_repeated_five_times(settings: Settings) -> None:
    write("alpha", STEADY)
    assert ends(lambda: run("resnet50-cpu", settings, ["--output", "out/", "--site", "alpha"], "auto")) == 0
    assert order() == ["alpha"] * 5


def test_the_limit_of_repeats_is_told(settings: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    write("alpha", NOISY)
    words = ["--output", "out/", "--site", "alpha"]
    assert ends(lambda: run("resnet50-cpu", settings, words, "auto", most_repeats=7)) == 0
    assert order() == ["alpha"] * 7 and "warning: 7 repeats" in capfd.readouterr().err


def test_a_failure_ends_what_depends_on_measurements(settings: Settings) -> None:
    write("alpha", [100.0], status__state="out_of_memory", status__exit_code=4)
    assert ends(lambda: run("resnet50-cpu", settings, ["--output", "out/", "--site", "alpha"], "auto")) == 4
    assert order() == ["alpha"]


def test_a_failure_leaves_the_others_their_repeats(settings: Settings) -> None:
    write("alpha", STEADY, status__state="out_of_memory", status__exit_code=4)
    write("beta", STEADY)
    assert ends(lambda: run("resnet50-cpu", settings, ["--output", "out/"], "2", variant=BOTH, interleave=True)) == 4
    assert order() == ["alpha", "beta", "beta", "alpha"]


def test_an_order_to_stop_ends_all(settings: Settings) -> None:
    write("alpha", STEADY, status__state="interrupted", status__exit_code=143)
    assert ends(lambda: run("resnet50-cpu", settings, ["--output", "out/"], "2", variant=BOTH, interleave=True)) == 143
    assert order() == ["alpha"]


@pytest.fixture
def unwinding() -> Iterator[None]:
    """Signals as a command takes them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    unwind_on_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("unwinding")
def test_an_order_that_comes_when_a_run_is_done_ends_all(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for site in ("alpha", "beta"):
        write(site, STEADY)
    late = "import os, signal; signal.signal(15, signal.SIG_IGN); os.kill(os.getppid(), 15)\nsys.exit("
    monkeypatch.setattr(sys.modules[__name__], "IMAGE", IMAGE.replace("sys.exit(", late))
    assert ends(lambda: run("resnet50-cpu", settings, ["--output", "out/"], "2", variant=BOTH, interleave=True)) == 143
    assert order() == ["alpha"] and len(list(Path("out").glob("*own.json"))) == 1


@pytest.mark.usefixtures("unwinding")
def test_an_order_that_comes_while_a_run_is_started_ends_all(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site in ("alpha", "beta"):
        write(site, STEADY)
    start = subprocess.Popen

    def started(*words: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return start(*words, **options)

    monkeypatch.setattr(subprocess, "Popen", started)
    assert ends(lambda: run("resnet50-cpu", settings, ["--output", "out/"], "2", variant=BOTH, interleave=True)) == 143
    assert not Path("ledger").exists() or order() == ["alpha"]


@pytest.mark.parametrize(
    ("repeat", "words", "fields"),
    [
        ("auto", ["--output", "one.json"], {}),
        ("auto", ["--output", "-"], {}),
        ("auto", ["--list"], {}),
        ("2", ["--output=one.json"], {"variant": BOTH, "interleave": True}),
        ("none", [], {}),
        ("0", [], {}),
        ("3", [], {"within": "2%"}),
        ("3", [], {"most_repeats": 5}),
        ("auto", [], {"within": "2 of 100"}),
        ("auto", [], {"within": "100%"}),
        ("auto", [], {"most_repeats": 4}),
        ("auto", [], {"printed": True}),
        ("2", [], {"variant": BOTH, "interleave": True, "printed": True}),
        ("1", [], {"wait_idle": "soon"}),
    ],
)
def test_what_means_nothing_is_refused(
    settings: Settings, engine: Images, repeat: str, words: list[str], fields: dict[str, Any]
) -> None:
    with refused(UsageError, "invalid-option"):
        run("resnet50-cpu", settings, words, repeat, **fields)
    assert not engine.commands


def test_commands_are_printed_in_their_order(settings: Settings, engine: Images) -> None:
    run("resnet50-cpu", settings, ["resnet50-cpu_tf", "--steps", "2"], "3", printed=True)
    assert [(address, tuple(words)) for address, _, words, _ in engine.commands] == [
        ("fake:resnet50-cpu", ("--steps", "2", "--repeat", "3")),
        ("fake:resnet50-cpu_tf", ("--steps", "2", "--repeat", "3")),
    ]


@pytest.mark.parametrize(
    ("command", "host", "is_local", "counts"),
    [
        (["--site", "alpha"], "", True, True),
        (["--site", "alpha"], "elsewhere", True, False),
        (["--site", "alpha"], "a container", False, True),
        (["--site", "beta"], "", True, False),
    ],
)
def test_only_results_of_this_command_on_this_host_are_repeats(
    any_command: None, tmp_path: Path, command: list[str], host: str, is_local: bool, counts: bool
) -> None:
    watch = ResultWatch(tmp_path)
    document = documents.valid(host__hostname__value=host or socket.gethostname())
    document["provenance"]["command"] = command
    (tmp_path / "new.json").write_text(json.dumps(document))
    assert bool(watch.values(watch.changed(), ["--site", "alpha"], is_local)) is counts
    assert not watch.changed() and not watch.values([tmp_path / "new.json"], ["--site", "alpha"], is_local)


def test_lines_that_were_there_before_are_no_repeats(any_command: None, tmp_path: Path) -> None:
    file, lines = tmp_path / "all.jsonl", []
    for number in range(2):
        document = documents.valid(id=f"4d20c7d{number}-dbcb-4ee8-a7d9-1e864f5d61aa")
        document["provenance"]["command"] = []
        lines.append(json.dumps(document) + "\n")
    file.write_text(lines[0])
    watch = ResultWatch(file)
    assert not watch.changed()
    file.write_text("".join(lines))
    assert len(watch.values(watch.changed(), [], False)) == 1
    assert not watch.values([file], [], False)


def test_programs_repeat_likewise(settings: Settings) -> None:
    for site in ("alpha", "beta"):
        write(site, STEADY)
    variants = ({"site": "alpha"}, {"site": "beta"})
    done = sifmark.run("resnet50-cpu", output="out/", settings=settings, repeat="auto", variants=variants)
    assert done.exit_code == 0 and order() == ["alpha", "beta", "beta", "alpha"] * 2 + ["alpha", "beta"]
    assert len([file for file in done.files if "own" in file.name]) == 10
    with refused(SifmarkError, "invalid-option"):
        sifmark.run("resnet50-cpu", output="one.json", settings=settings, repeat=2, variants=variants)
