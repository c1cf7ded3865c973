"""Study files: what is read, and what is refused with the line and a remedy."""

import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from properties import examples
from unit.refusals import refused

from sifmark.core import paths
from sifmark.core.errors import UsageError
from sifmark.core.schemas import errors_of, read_schema
from sifmark.engines.binds import Bind
from sifmark.studies.expand import expand
from sifmark.studies.feasibility import resolve_config, target_of
from sifmark.studies.groups import apply_variant
from sifmark.studies.image_options import DIVISION, division_of, option_keys
from sifmark.studies.load import load_study
from sifmark.studies.study import Run, Study, System
from sifmark.studies.study_file import Lines, read_study_file, study_names
from sifmark.studies.study_schema import example_of, rule_at

HERE = System("here", "cpu", devices=4)
HEAD = 'title = "t"\n'
# Options of images that a study chooses itself, by other keys or not at all.
CHOSEN = {"all", "repeat", "batch_sizes", "find_max_batch", "replicas", "rendezvous", "output", "site", "json"}
CHOSEN |= {"measured_peak"}


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(HEAD + textwrap.dedent(text))
    return path


def load(folder: Path, text: str, variant: str = "") -> Study:
    return load_study(str(write(folder, text)), variant)


def runs(folder: Path, text: str, system: System = HERE) -> tuple[Run, ...]:
    return expand(load(folder, text), [system])


def refusal_of(folder: Path, text: str, variant: str = "") -> tuple[str, str]:
    with refused(UsageError, "study-invalid") as error:
        load(folder, text, variant)
    cause = error.value.cause.removeprefix(f"{folder / 'mine.toml'}:")
    assert cause != error.value.cause, f"no file and line: {error.value.cause}"
    return cause, error.value.remedy


def test_keys_of_runs_are_the_options_of_images() -> None:
    definitions = read_schema("study-1.0")["$defs"]
    keys = set(definitions["match"]["properties"])
    assert keys - set(DIVISION) == (set(option_keys()) - CHOSEN - set(DIVISION))
    for name in ("run", "run_changes", "run_settings"):
        assert keys <= set(definitions[name]["properties"])
        for key in keys:
            assert definitions[name]["properties"][key] == definitions["match"]["properties"][key]


@pytest.mark.parametrize("name", sorted(path.stem for path in paths.STUDIES.glob("*.toml")))
def test_shipped_studies_load_in_every_variant(name: str) -> None:
    document = read_study_file(paths.STUDIES / f"{name}.toml").document
    for variant in ("", *document.get("variant", {})):
        study = load_study(str(paths.STUDIES / f"{name}.toml"), variant)
        systems = study.systems or (HERE,)
        expanded = expand(study, systems)
        assert expanded
        assert (
            not variant
            or {system.image for system in study.systems} <= {"cpu", "cpu_tf", "cpu_serving"}
            or variant != "small"
        )


def test_a_list_is_an_axis_and_repeats_are_outermost(tmp_path: Path) -> None:
    expanded = runs(
        tmp_path,
        """
        repeats = 2
        [[run]]
        workload = "resnet50"
        precision = ["bf16", "fp32"]
        batch_size = [1, 2]
        except = [{ precision = "bf16", batch_size = [1] }]
        """,
    )
    cells = [(run.repeat, run.cell["precision"], run.cell["batch_size"]) for run in expanded]
    assert cells == [(r, *cell) for r in (1, 2) for cell in (("bf16", 2), ("fp32", 1), ("fp32", 2))]
    assert len({run.key("sha256:0") for run in expanded}) == 6
    assert expanded[0].cell is expanded[3].cell and expanded[0].arguments is expanded[3].arguments


def test_weak_scaling_multiplies_the_batch_by_the_devices(tmp_path: Path) -> None:
    text = """
    [[run]]
    workload = "resnet50"
    batch_size = 8
    devices = [1, 4, 8]
    strategy = "ddp"
    scaling = "weak"
    """
    single, four, eight = runs(tmp_path, text)
    assert single.arguments == ("resnet50", "--batch-size", "8")
    assert four.arguments == ("resnet50", "--batch-size", "32", "--replicas", "4", "--strategy", "ddp")
    assert (four.devices, four.nodes, eight.devices, eight.nodes) == (4, 1, 8, 2)
    assert runs(tmp_path, text.replace("weak", "strong"))[1].arguments[2] == "8"


def test_max_searches_for_the_largest_batch(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, '[[run]]\nworkload = "resnet50"\nbatch_size = "max"')
    assert run.arguments == ("resnet50", "--find-max-batch")


DEFAULTS = """
    [defaults]
    task = "training"
    duration = "9s"
    precision = "bf16"
    [[run]]
    workload = "resnet50"
    [[run]]
    name = "other"
    workload = "lstm"
    precision = "fp32"
    steps = 9
    [variant.short]
    set = { steps = 4 }
    [variant.bare]
    remove = ["precision"]
    """


def test_runs_take_what_they_do_not_have_from_the_defaults(tmp_path: Path) -> None:
    first, second = (run.cell for run in runs(tmp_path, DEFAULTS))
    assert first == {"workload": "resnet50", "task": "training", "duration": "9s", "precision": "bf16"}
    assert second == {"workload": "lstm", "task": "training", "steps": 9, "precision": "fp32"}, (
        "a length takes the other's place"
    )


def test_variants_change_defaults_as_what_runs_have(tmp_path: Path) -> None:
    short, bare = load(tmp_path, DEFAULTS, "short"), load(tmp_path, DEFAULTS, "bare")
    assert all(group.axes["steps"] == (4,) and "duration" not in group.axes for group in short.groups)
    assert not any("precision" in group.axes for group in bare.groups)


def test_an_error_in_a_default_names_its_line(tmp_path: Path) -> None:
    text = """
        [defaults]
        precision = "fp17"
        [[run]]
        workload = "resnet50"
        """
    assert refusal_of(tmp_path, text)[0].startswith("4: run resnet50: ")


@pytest.mark.parametrize(("devices", "micro"), [(1, 64), (4, 64)])
def test_a_whole_micro_batch_is_that_of_a_replica(tmp_path: Path, devices: int, micro: int) -> None:
    text = f"""
        [[run]]
        workload = "gpt2_xl"
        task = "training"
        batch_size = 64
        micro_batch_size = "whole"
        scaling = "weak"
        devices = {devices}
        """
    (run,) = runs(tmp_path, text)
    assert run.arguments[run.arguments.index("--micro-batch-size") + 1] == str(micro)
    assert run.arguments[run.arguments.index("--batch-size") + 1] == str(64 * devices)
    resolved = resolve_config(run.cell, division_of(run.cell, HERE), target_of("cuda")).configuration
    assert (resolved.micro_batch_size, resolved.gradient_accumulation) == (micro, 1)


def test_a_whole_micro_batch_needs_a_batch(tmp_path: Path) -> None:
    cause, remedy = refusal_of(tmp_path, '[[run]]\nworkload = "gpt2"\nmicro_batch_size = "whole"')
    assert "batch_size is no number" in cause and "batch_size" in remedy


def test_a_study_that_does_not_compile_is_read(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, '[[run]]\nworkload = "gpt2"\ncompile = false')
    assert run.arguments[:3] == ("gpt2", "--compile", "none")


def test_strategies_with_stages_take_all_devices_for_them(tmp_path: Path) -> None:
    text = '[[run]]\nworkload = "gpt2"\ntask = "inference"\nstrategy = "tensor"\ndevices = [1, 2]'
    single, two = runs(tmp_path, text)
    assert single.arguments == ("gpt2", "--task", "inference")
    assert two.arguments == ("gpt2", "--strategy", "tensor", "--task", "inference", "--tensor", "2")


def test_arguments_of_a_system_come_last(tmp_path: Path) -> None:
    system = System("here", "cpu", arguments=("--meter", "none"))
    (run,) = runs(tmp_path, '[[run]]\nworkload = "matmul"', system)
    assert run.arguments == ("matmul", "--meter", "none")


def test_the_order_of_keys_does_not_change_the_identity(tmp_path: Path) -> None:
    (first,) = runs(tmp_path, '[[run]]\nworkload = "resnet50"\nsteps = 8\nbatch_size = 2')
    (other,) = runs(tmp_path, '[[run]]\nbatch_size = 2\nsteps = 8\nworkload = "resnet50"')
    assert first.key("image") == other.key("image")


VARIANT = """
repeats = 3
[[system]]
name = "big"
image = "cuda"
[[run]]
name = "a"
workload = "resnet50"
epochs = 2
samples_per_epoch = 1000
systems = ["big"]
[[run]]
name = "b"
workload = "bert_base"
repeats = 5
[[output]]
name = "of-b"
title = "t"
kind = "table"
runs = ["b"]
x = "batch_size"
y = "throughput"
[variant.small]
runs = ["a"]
repeats = 1
questions = ["Does it work?"]
set = { steps = 6, batch_size = [1, 2] }
remove = ["epochs", "samples_per_epoch"]
[[variant.small.system]]
name = "here"
image = "cpu"
[variant.small.run.a]
precision = "fp32"
"""


def test_a_variant_replaces_systems_runs_and_values(tmp_path: Path) -> None:
    study = load(tmp_path, VARIANT, "small")
    assert [system.name for system in study.systems] == ["here"]
    expanded = expand(study, study.systems)
    assert [run.arguments for run in expanded] == [
        ("resnet50", "--batch-size", size, "--precision", "fp32", "--steps", "6") for size in ("1", "2")
    ]
    assert study.outputs == () and study.variant == "small" and study.questions == ("Does it work?",)
    whole = load(tmp_path, VARIANT)
    assert [len(whole.outputs), len(expand(whole, whole.systems))] == [1, 3 + 5]


def test_the_folder_of_a_variant_is_no_name_of_a_study() -> None:
    with pytest.raises(UsageError) as error:
        load_study("quick-small")
    assert error.value.remedy == "it is a variant of quick: quick --variant small"
    with pytest.raises(UsageError, match="no study 'quick-smal'") as error:
        load_study("quick-smal")
    assert "did you mean quick" in error.value.remedy


def test_lines_of_keys_in_every_form() -> None:
    text = 'a = """x\n[b]\n"""\n\n[c."d e"]\nf.g = [1, # ]\n  "]",\n]\n[[h]]\n[[h]]\ni = { j = 1 }\n[h.k]\nl = 2\n'
    lines = Lines(text)
    assert lines.of(("c", "d e", "f", "g")) == 6
    assert lines.of(("h", 1, "i", "j")) == 11
    assert lines.of(("h", 1, "k", "l")) == 13
    assert lines.of(("h", 0)) == 9
    assert lines.of(("nothing",)) == 1


RUN, SYSTEM = '[[run]]\nworkload = "lstm"\n', '[[system]]\nname = "a"\nimage = "cpu"\n'
OUTPUT = RUN + '[[output]]\nname = "o"\ntitle = "t"\nkind = "line"\n'
BATCHES, SEEDS = list(range(1, 1001)), list(range(1000))
# A file, and what cause and remedy have to say.
BAD = {
    "syntax": ("[[run]\n", "2: Expected", "TOML"),
    "lists without end": (RUN + "steps = " + "[" * 5000, "1: maximum recursion", "TOML"),
    "number without end": (RUN + "steps = " + "9" * 5000, "1: Exceeds the limit", "TOML"),
    "other number without end": (RUN + "steps = 0x" + "f" * 5000, "1: Exceeds the limit", "TOML"),
    "a date": (RUN + "steps = 2026-01-01", "4: [[run]] steps = 2026-01-01 is a date or time", "steps = 2"),
    "unknown key of the study": ("titel = 2\n" + RUN, "2: no key 'titel'", "title"),
    "unknown key of a run": (RUN + "batchsize = 2", "4: no key 'batchsize' in [[run]]", "batch_size"),
    "unknown key of a system": (SYSTEM + "gpus = 2\n" + RUN, "5: no key 'gpus' in [[system]]", "known"),
    "no run": ("run = []", "2: run", ""),
    "no workload": ("[[run]]\nsteps = 2", "2: [[run]] has no workload", 'add workload = "resnet50"'),
    "unknown workload": (RUN.replace("lstm", "resnet5"), "3: no workload 'resnet5'", "did you mean resnet50"),
    "unknown recipe": (SYSTEM.replace("cpu", "cdua") + RUN, "4: no recipe", "cuda"),
    "unknown precision": (RUN + 'precision = ["fp32", "bf61"]', "4: run lstm: no precision", "bf16"),
    "unknown strategy": (RUN + 'strategy = "dpp"', "4: run lstm: no strategy 'dpp'", "ddp"),
    "unknown task": (RUN + 'task = "learning"', "4: run lstm-learning: no task", "training"),
    "unknown meter": (RUN + 'meter = "watt"', "4: run lstm: meter: no meter 'watt'", "nvml"),
    "unknown system": (RUN + 'systems = ["here"]', "4: no system 'here'", "none"),
    "value of another kind": (RUN + 'batch_size = ["big"]', '4: [[run]] batch_size = ["big"]: "big" is a text', "max"),
    "bad time": (RUN + 'duration = "5 parsecs"', "4: run lstm: duration: '5 parsecs'", ""),
    "no devices": (RUN + "devices = 0", "4: run lstm: devices: 0", "devices = 2"),
    "empty list": (RUN + "batch_size = []", "4: [[run]] batch_size = [] is empty", "list"),
    "same value twice": (RUN + "batch_size = [2, 2]", "4: [[run]] batch_size = [2, 2] has 2 twice", "different"),
    "nothing left by except": (RUN + 'except = [{ workload = "lstm" }]', "4: run lstm: no cell is left", "remove one"),
    "except that matches nothing": (
        *(RUN + "batch_size = [1, 2]\nexcept = [{ batch_size = 4 }]", "5: run lstm: except names batch_size = 4"),
        "batch_size: 1, 2",
    ),
    "except with an unknown key": (
        RUN + "except = [{ batch = 4 }]",
        "4: no key 'batch' in except of [[run]]",
        "batch_size",
    ),
    "steps and epochs": (
        RUN + "steps = 4\nepochs = 2",
        "2: run lstm: steps: not allowed with epochs",
        "leave one of them",
    ),
    "task that the workload lacks": (
        RUN.replace("lstm", "mcmc") + 'task = "training"',
        *("2: run mcmc-training: none of its cells can run: task training: mcmc can do sampling", ""),
    ),
    "concurrency of a training": (
        RUN + 'task = "training"\nconcurrency = 4',
        *("2: run lstm-training: none of its cells can run: concurrency 4", ""),
    ),
    "weak scaling without a batch": (RUN + 'scaling = "weak"', "4: run lstm: weak", "batch_size"),
    "two runs of a name": (RUN * 2, "run lstm: there is another", "name"),
    "two systems of a name": (SYSTEM * 2 + RUN, "6: system a: there is another", "name"),
    "system called jobs": (SYSTEM.replace('"a"', '"jobs"') + RUN, "3: system jobs", ""),
    "system with a path as its name": (SYSTEM.replace('"a"', '"../a"') + RUN, "3: ", ""),
    "a million runs": (
        f"{RUN}batch_size = {BATCHES}\nseed = {SEEDS}",
        *("2: run lstm: 1,000,000 runs (1000 of batch_size, 1000 of seed, 1 repeats)", "shorten"),
    ),
    "unknown metric": (OUTPUT + 'x = "system"\ny = "trougput"', "9: no metric 'trougput'", "throughput"),
    "unknown axis of a figure": (OUTPUT + 'x = "batch"\ny = "throughput"', "8: no key of runs 'batch'", "batch_size"),
    "output of an unknown run": (*(OUTPUT + 'runs = ["x"]\nx = "system"\ny = "throughput"', "8: no run 'x'", "lstm"),),
}


@pytest.mark.parametrize("text, cause, remedy", BAD.values(), ids=BAD)
def test_bad_files_are_refused_with_line_and_remedy(tmp_path: Path, text: str, cause: str, remedy: str) -> None:
    shown = refusal_of(tmp_path, text)
    assert cause in shown[0]
    assert remedy in shown[1]


TEN = """\
repeats = "3"
colour = "red"
[[system]]
name = "alpha"
image = "cdua"
devices = 0
[[run]]
workload = "resnt50"
batch_size = [1, 2, 2]
precision = [5]
systems = ["beta"]
[[run]]
workload = "lstm"
steps = 4
epochs = 2
[[output]]
name = "o"
title = "t"
kind = "lines"
x = "batch"
y = "throughput"
runs = ["lstn"]
"""
SAID = """\
mine.toml has 12 errors
mine.toml:2: repeats = "3" is a text
  remedy: remove the quotes: repeats = 3
mine.toml:3: no key 'colour'
  remedy: did you mean source?
mine.toml:6: no recipe 'cdua'
  remedy: did you mean cuda or cuda12 or cpu?
mine.toml:7: [[system]] devices = 0 is less than 1
  remedy: a whole number from 1 to 4096: accelerators of a node; for example devices = 4
mine.toml:9: no workload 'resnt50'
  remedy: did you mean resnet50 or resnext101_32x4d?
mine.toml:10: [[run]] batch_size = [1, 2, 2] has 2 twice
  remedy: a whole number from 1 or "max", or a list of different ones: samples of a step, of all devices together or \
with `scaling = "weak"` of one device; chains in sampling; `"max"` searches for the largest that fits; for example \
batch_size = [16, 64]
mine.toml:11: [[run]] precision = [5]: 5 is a whole number
  remedy: a text, or a list of different texts: fp32, tf32, bf16, fp16 or fp8; default: the workload's; for example \
precision = "bf16"
mine.toml:12: no system 'beta'
  remedy: known: alpha
mine.toml:13: run lstm: steps: not allowed with epochs
  remedy: leave one of them out; in a variant: remove = [...]
mine.toml:20: [[output]] kind = "lines" is none of table, line, bar, heat-map
  remedy: table, line, bar or heat-map; for example kind = "table"
mine.toml:21: no key of runs 'batch'
  remedy: did you mean batch_size?
mine.toml:23: no run 'lstn'
  remedy: did you mean lstm?"""


def test_all_errors_of_a_file_are_shown_at_once(tmp_path: Path) -> None:
    with refused(UsageError, "study-invalid") as error:
        load(tmp_path, TEN)
    assert error.value.cause.replace(f"{tmp_path}/", "") == SAID


def test_what_a_refused_value_decides_is_no_error_of_its_own(tmp_path: Path) -> None:
    """Names of runs and systems are unknown where the schema refuses what they are made of, and cells likewise."""
    text = """
        [[system]]
        name = "../a"
        image = "cpu"
        [[run]]
        workload = ["lstm", 5]
        batch_size = [1, "x"]
        systems = ["a"]
        except = [{ batch_size = 4 }]
        [[output]]
        name = "o"
        title = "t"
        kind = "line"
        runs = ["lstm"]
        x = "system"
        y = "throughput"
        [variant.small]
        runs = ["lstm"]
        """
    with refused(UsageError, "study-invalid") as error:
        load(tmp_path, text)
    lines = [line for line in error.value.cause.splitlines() if not line.startswith("  ")]
    assert [line.rpartition("mine.toml:")[2].partition(":")[0] for line in lines[1:]] == ["4", "7", "8"]


def test_many_errors_are_counted(tmp_path: Path) -> None:
    with refused(UsageError, "study-invalid", "30 errors") as error:
        load(tmp_path, f"[[run]]\nworkload = {[f'w{number}' for number in range(30)]}")
    assert error.value.cause.endswith("and 10 more") and error.value.cause.count("no workload") == 20
    many = "".join(f"key_{number} = 1\n" for number in range(3000))
    with refused(UsageError, "study-invalid", "at least 100 errors"):
        load(tmp_path, f'{many}[[run]]\nworkload = "lstm"')


def test_a_login_is_not_repeated(tmp_path: Path) -> None:
    text = '[[system]]\nname = "a"\nimage = ["oras://me:secret@registry/a"]\n[[run]]\nworkload = "lstm"'
    cause, _ = refusal_of(tmp_path, text)
    assert "secret" not in cause and "***@registry" in cause


def test_no_error_has_an_escape_sequence(tmp_path: Path) -> None:
    text = RUN + '[variant."\\u001b[31m"]\nrepeats = "\\u001b"\n"\\u009b" = 2\n[variant.small.run."\\u001b"]\nseed = 1'
    with refused(UsageError, "study-invalid") as error:
        load(tmp_path, text)
    assert all(line.isprintable() for line in str(error.value).splitlines())
    assert "[variant.\\x1b[31m] repeats" in error.value.cause


def _keys(rule: dict[str, Any], place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the places of all keys that a file may have."""
    for key in rule.get("properties", {"NAME": rule["additionalProperties"]} if "title" not in rule else {}):
        inner = rule_at((*place, key))
        items = rule_at((*place, key, 0)) if inner.get("type") == "array" else {}
        if items.get("type") == "object":
            yield from _keys(dict(items), (*place, key, 0))
        elif inner.get("type") == "object" and key != "slurm":
            yield from _keys(dict(inner), (*place, key))
        elif key != "slurm":
            yield (*place, key)


def test_every_key_has_an_example_that_is_valid() -> None:
    places = list(_keys(dict(rule_at(()))))
    assert len(places) > 150
    for place in places:
        value = tomllib.loads(example_of(place))[str(place[-1])]
        names = place[:-1]
        assert is_valid_at(names, place[-1], value), place


def is_valid_at(table: tuple[str | int, ...], key: str | int, value: object) -> bool:
    """Return whether a document in which a key has a value is refused for nothing of that key."""
    inner: Any = {key: value}
    for step in reversed(table):
        inner = [inner] if isinstance(step, int) else {step: inner}
    return all(key not in error.absolute_path for error in errors_of("study-1.0", inner))


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*place, step)
        yield from _places(inner, (*place, step))


TEXTS = st.sampled_from(["", "lstm", "max", "5", "a/b", "training"])
RANDOM = st.recursive(
    st.booleans() | st.integers(-3, 3) | st.floats() | st.integers() | st.dates() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS.filter(bool), inner, max_size=2),
    max_leaves=4,
)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(300))
@given(data=st.data())
def test_any_values_give_errors_and_no_traceback(tmp_path: Path, data: st.DataObject) -> None:
    """Values of any kind take the place of those of a valid file."""
    document = tomllib.loads(HEAD + VARIANT)
    places = list(_places(document))
    for place in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=4)):
        table: Any = document
        with suppress(LookupError, TypeError):  # an earlier one took the place of what it is in
            for step in place[:-1]:
                table = table[step]
            if isinstance(table, list) == isinstance(place[-1], int):
                table[place[-1]] = data.draw(RANDOM)
    (tmp_path / "mine.toml").write_text(tomlkit.dumps(document))
    with suppress(UsageError):
        load_study(str(tmp_path / "mine.toml"), data.draw(st.sampled_from(["", "small"])))


def test_unknown_variants_and_runs_of_variants_are_refused(tmp_path: Path) -> None:
    cause, remedy = refusal_of(tmp_path, VARIANT, "smal")
    assert "no variant 'smal'" in cause and "did you mean small" in remedy
    cause, remedy = refusal_of(tmp_path, VARIANT.replace("variant.small.run.a", "variant.small.run.c"), "small")
    assert "no run 'c'" in cause


def test_errors_in_a_variant_name_its_line(tmp_path: Path) -> None:
    cause, _ = refusal_of(tmp_path, VARIANT.replace('precision = "fp32"', 'precision = "fp23"'), "small")
    line = (HEAD + VARIANT).splitlines().index('precision = "fp32"') + 1
    assert cause.startswith(f"{line}: run a: no precision 'fp23'")


def test_too_many_systems_for_a_study(tmp_path: Path) -> None:
    study = load(tmp_path, f'repeats = 100\n[[run]]\nworkload = "lstm"\nseed = {list(range(1000))}')
    with refused(UsageError, "study-invalid", "200,000 runs on 2 systems"):
        expand(study, [HERE, System("other", "cpu")])


def test_unknown_studies_are_refused_with_suggestions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(UsageError, "unknown-name", "'quik'") as error:
        load_study("quik")
    assert "did you mean quick" in error.value.remedy
    with refused(UsageError, "file-missing"):
        load_study("./quick.toml")


def test_own_studies_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    write(tmp_path / "studies", '[[run]]\nworkload = "lstm"')
    assert "mine" in study_names() and "quick" in study_names()
    assert load_study("mine").groups[0].name == "lstm"


def test_a_study_without_variants_is_its_document(tmp_path: Path) -> None:
    file = read_study_file(write(tmp_path, '[[run]]\nworkload = "lstm"'))
    assert apply_variant(file, "") is file.document


# What runs see of the host


def test_a_bind_of_a_system_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = """
    [[system]]
    name = "here"
    image = "cpu"
    bind = ["sets", "/scratch:/data:rw"]
    [[run]]
    workload = "lstm"
    """
    (system,) = load(tmp_path, text).systems
    assert system.bind == (Bind(tmp_path / "sets"), Bind(Path("/scratch"), True, Path("/data")))
    for wrong in ('"/scratch:data"', '"/scratch:/data:nodev"', '"/a:/usr"', '"/a:/data", "/b:/data"'):
        cause, _ = refusal_of(tmp_path, text.replace('"sets", "/scratch:/data:rw"', wrong))
        assert cause.startswith("6: system here: bind ")
