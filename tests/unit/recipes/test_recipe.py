"""Recipes: what is refused, and that the refusal names file, key and remedy."""

import re
from pathlib import Path

import pytest
from unit.refusals import refused

from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import load_settings
from sifmark.engines.apptainer.engine import Apptainer
from sifmark.recipes.hardware import Access, flags_of
from sifmark.recipes.recipe import load_recipe, pinned_digest, read_recipe, recipe_names

# The digest of the second platform, aarch64, as one that nobody has seen.
CPU = re.sub(
    r'(aarch64\]\ndigest = )"sha256:\w+"', r'\1"unresolved"', (paths.RECIPES / "cpu.toml").read_text(encoding="utf-8")
)
# What Python, and so a reader of lines, takes for the end of one, beside those below a blank.
LINE_ENDS = ("\\u0085", "\\u2028", "\\u2029", "\\u007f", "\\u009b")


def refusal_of(tmp_path: Path, text: str) -> UsageError:
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_recipe(path)
    assert str(path) in caught.value.cause
    assert caught.value.remedy and caught.value.code == "document-invalid"
    return caught.value


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_reads(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert "-" not in name, "one dash separates workload and recipe"


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('digest = "sha256:', 'digest = "sha256:xyz', "base.digests.x86_64.digest"),
        ('digest = "unresolved"', 'digest = "latest"', "base.digests.aarch64.digest"),
        ('digest = "unresolved"\n', "", "base.digests.aarch64"),
        ('title = "CPU, PyTorch"', "title = 7", "title"),
        ('python = "3.11"', "python = 3.11", "base.python"),
        ("redistributable = true", 'redistributable = "yes"', "base.redistributable"),
        ('hardware = "cpu"', 'hardware = "cpu"\ncolour = "blue"', "the document"),
        ('hardware = "cpu"', 'hardware = "cpus"', "hardware"),
        ('hardware = "cpu"\n', "", "the document"),
        ('PYTHONHOME = ""', 'PYTHONHOME = "a\\nb"', "environment.PYTHONHOME"),
        ('PYTHONHOME = ""', 'PYTHONHOME = "{{ x }}"', "environment.PYTHONHOME"),
        ('"numpy==2.4.6"', '"numpy>=2"', "wheels.requires"),
        ('title = "CPU, PyTorch"', 'title = "a\\n%post\\n    id"', "title"),
        *(('title = "CPU, PyTorch"', f'title = "a{end}%post{end}    id"', "title") for end in LINE_ENDS),
        *(('PYTHONHOME = ""', f'PYTHONHOME = "a{end}%post"', "environment.PYTHONHOME") for end in LINE_ENDS),
        *(('licence = "PSF', f'licence = "a{end}PSF', "base.licence") for end in LINE_ENDS),
        ('"numpy==2.4.6"', '"--index-url==1"', "wheels.requires"),
        ('"numpy==2.4.6"', '".numpy==1"', "wheels.requires"),
        ('title = "CPU, PyTorch"', 'title = "{{ x }}"', "title"),
        ('licence = "PSF', 'licence = "x\\norg.sifmark.stand-in false PSF', "base.licence"),
        ('tag = "3.11-slim-bookworm"', 'tag = "3.11-slim-bookworm\\n"', "base.tag"),
        ('digest = "unresolved"', 'digest = "unresolved\\n"', "base.digests.aarch64.digest"),
    ],
)
def test_a_wrong_value_names_its_key(tmp_path: Path, old: str, new: str, field: str) -> None:
    assert old in CPU
    assert f" {field}" in refusal_of(tmp_path, CPU.replace(old, new, 1)).cause


def test_a_recipe_may_state_device_and_access_itself(tmp_path: Path) -> None:
    path = tmp_path / "earlier.toml"
    text = CPU.replace('hardware = "cpu"', 'device = "cuda"')
    path.write_text(text + '\n[run]\napptainer = ["--nvccli"]\ndevices = ["/dev/nvidia0"]\n')
    recipe = read_recipe(path)
    assert (recipe.device, recipe.access) == ("cuda", Access(("/dev/nvidia0",), ("--nvccli",)))
    assert recipe.aliases == ()


def test_an_unknown_key_is_named_with_the_known_ones(tmp_path: Path) -> None:
    error = refusal_of(tmp_path, 'colour = "blue"\n' + CPU)
    assert "colour" in error.cause
    assert "framework" in error.remedy


def test_what_is_not_toml(tmp_path: Path) -> None:
    assert "at line 2" in refusal_of(tmp_path, 'title = "a"\n= 3\n').cause


def test_unknown_recipe_lists_the_nearest() -> None:
    with refused(UsageError, "unknown-name", "'cpux'") as caught:
        load_recipe("cpux")
    assert "did you mean cpu or " in caught.value.remedy


def test_a_platform_without_base_is_refused() -> None:
    with refused(SifmarkError, "platform-unsupported", "riscv64"):
        pinned_digest(load_recipe("cpu"), "riscv64")


@pytest.mark.parametrize(
    ("access", "harmless"),
    [
        (Access(("/dev/nvidia0", "/dev/ipu*"), ("--nv",)), True),
        (Access(("/dev/../etc",)), False),
        (Access(("/etc/shadow",)), False),
        (Access(("/dev/nvidia0 --bind /:/host",)), False),
        (Access(("/dev/kfd",), ("--rocm", "--bind=/")), False),
        (Access(("/dev/kfd",), docker=tuple(flags_of("docker"))), True),
        (Access(("/dev/kfd",), docker=("--privileged",)), False),
        (Access(("/dev/kfd",), docker=("--volume=/:/host",)), False),
    ],
)
def test_what_labels_may_ask_for(access: Access, harmless: bool) -> None:
    assert access.is_allowed() is harmless


def test_what_reaches_a_device(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("ipu0", "ipu1")]
    assert Apptainer(load_settings()).device_flags(Access((f"{tmp_path}/ipu*",), ())) == []
    for file in files:
        file.write_text("")
    assert Apptainer(load_settings()).device_flags(Access((f"{tmp_path}/ipu*",), ())) == [
        "--bind",
        str(files[0]),
        "--bind",
        str(files[1]),
    ]
    assert Apptainer(load_settings()).device_flags(Access((str(files[0]),), ("--nv",))) == ["--nv"]
    assert Apptainer(load_settings()).device_flags(Access((str(tmp_path / "none"),), ("--nv",))) == []
