"""The recipes of every vendor on their stand-in bases: built, verified, and run where the device is not."""

import itertools
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from images.sites import (
    Command,
    Site,
    answer,
    assert_same_tree,
    call,
    copy_project,
    lacks_wheels,
    make_site,
    outcomes,
)

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import load_settings, with_options
from sifmark.recipes.names import workloads_of
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import load_recipe, recipe_names

GATE = ("ipu",)
VENDORS = [name for name in recipe_names() if load_recipe(name).access]
RECIPES = [pytest.param(name, marks=[pytest.mark.full] * (name not in GATE)) for name in VENDORS]
SMALL = "image_compression"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site for the images of all vendors."""
    folder = Path(tempfile.mkdtemp(prefix="sifmark-test-"))
    yield make_site(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def image(site: Site, request: pytest.FixtureRequest) -> Path:
    """The image of a recipe, built once; a stand-in that could not be made here skips its tests."""
    recipe = request.param
    try:
        make_plan(recipe, with_options(load_settings(), bases="stand-in"))
    except SifmarkError as error:
        pytest.skip(error.cause)
    done = site.inv("build", recipe, check=False)
    if done.returncode and lacks_wheels(recipe, done.stderr):
        pytest.skip(f"no index here has the framework's wheel of recipe {recipe}")
    assert done.returncode == 0, done.stderr
    return site.dist / f"{SMALL}-{recipe}.sif"


def recipe_of(image: Path) -> str:
    return image.stem.partition("-")[2]


def able(site: Site) -> set[str]:
    """The recipes that have a stand-in here."""
    planned = json.loads(site.inv("build", "--all", "--dry-run", "--json").stdout)
    assert {intent["recipe"] for intent in planned} == set(recipe_names())
    assert all(intent["reason"] for intent in planned)
    return {intent["recipe"] for intent in planned if intent["action"] == "build"}


@pytest.mark.full
def test_the_whole_catalogue_then_nothing_to_do(site: Site) -> None:
    """The first test: those after it use its images."""
    recipes = able(site)
    assert {"cpu", "cuda", "ipu"} <= recipes and not list(site.dist.glob("*.sif"))
    made = site.inv("build", "--all", "--jobs", "2", "--json", check=False)
    first = outcomes(made)
    without = {name for name, each in first.items() if each["state"] == "failed" and lacks_wheels(name, made.stderr)}
    recipes -= without
    assert {name for name, outcome in first.items() if outcome["state"] == "built"} == recipes
    assert {outcome["state"] for name, outcome in first.items() if name not in recipes | without} <= {"skipped"}
    for recipe in recipes:
        record = json.loads((site.dist / f"{recipe}.sif.json").read_text())
        assert first[recipe]["digest"] == record["digest"] and first[recipe]["size"] > 2**20
        assert (site.dist / f"{recipe}.sif").samefile(site.dist / f"{first[recipe]['names'][0]}.sif")
    fakes = site.folder / "fakes"
    fakes.mkdir()
    for tool in ("apptainer", "mksquashfs", "pip", "git", "docker"):
        (fakes / tool).write_text(f"#!/bin/sh\necho {tool} >> {site.folder}/called\nexit 1\n")
        (fakes / tool).chmod(0o755)
    done = site.inv("build", *sorted(recipes), "--json", PATH=f"{fakes}:{os.environ['PATH']}")
    assert {outcome["state"] for outcome in outcomes(done).values()} <= {"up to date", "skipped"}
    assert not (site.folder / "called").exists()


@pytest.mark.matrix("apptainer")
@pytest.mark.parametrize("image", RECIPES, indirect=True)
def test_it_is_what_it_says_and_the_base_is_untouched(site: Site, image: Path) -> None:
    verdicts = json.loads(site.inv("verify", str(image), "--json").stdout)[str(image)]
    said = {verdict["stage"]: (verdict["outcome"], " ".join(verdict["reasons"])) for verdict in verdicts}
    assert {stage: outcome for stage, (outcome, _) in said.items()} == {
        **dict.fromkeys(("trust", "structure", "golden"), "passed"),
        "smoke": "skipped",
    }
    assert "unchanged files of the base" in said["structure"][1]
    assert said["smoke"][1].startswith(f"{SMALL}: ") and said["smoke"][1].endswith("its answer is valid")


@pytest.mark.matrix("apptainer")
@pytest.mark.parametrize("image", RECIPES, indirect=True)
def test_without_its_device_a_run_says_so(apptainer: Command, image: Path) -> None:
    done = apptainer("run", image, "--smoke", check=False)
    result = answer(done)
    assert (done.returncode, result["status"]["state"]) == (3, "no_device")
    assert result["provenance"]["image"]["recipe"] == recipe_of(image) and result["provenance"]["stand_in"] is True
    assert result["configuration"]["device"] == load_recipe(recipe_of(image)).device
    assert apptainer("test", image).returncode == 0, "a device that is not there is no failure of the image"


@pytest.mark.matrix("apptainer")
@pytest.mark.parametrize("image", RECIPES, indirect=True)
def test_it_computes_on_the_cpu_when_told(apptainer: Command, image: Path) -> None:
    version = make_plan(recipe_of(image), with_options(load_settings(), bases="stand-in")).base.framework_version
    done = apptainer("run", image, "--smoke", "--device", "cpu", check=False)
    result = answer(done)
    if version is None:  # a stand-in without a framework
        assert (done.returncode, result["status"]["state"]) == (4, "crashed")
        return
    assert (done.returncode, result["status"]["state"]) == (0, "completed"), result["status"]
    assert (result["configuration"]["device"], result["accelerator"]["kind"]) == ("cpu", "cpu")
    assert result["provenance"]["software"]["framework_version"].startswith(version)


@pytest.mark.parametrize(
    "image",
    # An old Python, ours, and the base with the strangest environment: what else a recipe changes, both builds change.
    [pytest.param(name, marks=pytest.mark.full) for name in ("ipu", "cpu", "cuda")],
    indirect=True,
)
def test_the_plain_build_gives_the_same_file_tree(site: Site, image: Path, tmp_path: Path) -> None:
    definition, plain = tmp_path / "image.def", tmp_path / "plain.sif"
    definition.write_text(site.inv("image.render", recipe_of(image)).stdout)
    # The first line of the definition says how to build it; what compresses best takes ten times as long.
    words = shlex.split(definition.read_text().splitlines()[0].lstrip("# "))[:-2]
    words[words.index("--mksquashfs-args") + 1] = f"-comp lz4 {words[-1]}"
    call([*words, "--disable-cache", "--no-https", plain, definition])
    assert_same_tree(image, plain, tmp_path)


@pytest.mark.parametrize("image", ["cuda"], indirect=True)
def test_the_environment_of_the_base_arrives(apptainer: Command, image: Path) -> None:
    """Apptainer 1.4 escapes quotes and dollar signs twice: such a value arrives changed, but the image starts."""
    quotes = apptainer("exec", image, "sh", "-c", 'printf "%s" "$SIFMARK_QUOTES"').stdout
    assert quotes.startswith("it's ") and "quoted" in quotes
    assert apptainer("exec", image, "sh", "-c", 'printf "%s" "$PIP_CONSTRAINT"').stdout == "/etc/pip/constraint.txt"


@pytest.mark.parametrize("image", ["cuda"], indirect=True)
def test_the_run_verb_says_what_it_would_do(site: Site, image: Path) -> None:
    done = site.inv("run", image.stem, "--print", "--", "--steps", "3")
    assert done.stdout.split()[-3:] == [str(image), "--steps", "3"]
    assert "has no /dev/nvidia?" in done.stderr and "--nv" not in done.stdout


@pytest.mark.full
@pytest.mark.parametrize("image", ["ipu_sdk32"], indirect=True)
@pytest.mark.parametrize(
    ("workload", "task"),
    list(itertools.product(("resnet50", "lstm", SMALL), ("training", "inference"))),  # all others: test_torch_ipu
)
def test_ipus_are_computed_on_by_the_stand_in_of_poptorch(
    apptainer: Command, image: Path, workload: str, task: str
) -> None:
    """With PyTorch 1.13.1, which the stand-in base has."""
    bind = ["--containall", "--cleanenv", "--bind", f"{paths.ROOT}/tests/inside/support/stand_ins:/stand-ins"]
    environment = {"PYTHONPATH": "/stand-ins", "POPTORCH_STAND_IN_SDK": "3.2", "OMP_WAIT_POLICY": "PASSIVE"}
    variables = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    options = ["--smoke", "--task", task, "--precision", "fp32"]
    result = answer(apptainer("run", *bind, *variables, image, workload, *options))
    assert result["status"]["state"] == "completed", result["status"]
    assert result["provenance"]["simulated"] and result["provenance"]["image"]["recipe"] == "ipu_sdk32"
    assert result["accelerator"]["kind"] == "ipu"


# Where Triton looks for the driver's library, as in libcuda_dirs() of triton/backends/nvidia/driver.py.
SEARCH = """
import os, subprocess, sys
sys.path.insert(0, "/sifmark")
from entrypoints.system import gpu_software
def found(environment):
    folders = [environment["TRITON_LIBCUDA_PATH"]] if "TRITON_LIBCUDA_PATH" in environment else listed
    return any(os.path.exists(os.path.join(folder, "libcuda.so.1")) for folder in folders)
cache = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
listed = [os.path.dirname(line.split()[-1]) for line in cache.splitlines() if "libcuda.so.1" in line]
before = found(os.environ)
with gpu_software.driver_for_triton(os.environ):
    where = os.path.realpath(os.environ["TRITON_LIBCUDA_PATH"] + "/libcuda.so")
    print(listed, before, found(os.environ), where)
"""


@pytest.mark.full
@pytest.mark.parametrize("image", ["cuda"], indirect=True)
def test_triton_finds_the_driver_where_the_linkers_cache_is_stale(
    apptainer: Command, image: Path, tmp_path: Path
) -> None:
    """By what `--nv` is made of, with a file in place of the driver's library, of which a host has one name only."""
    (tmp_path / "libcuda.so.1").touch()
    bound = {**os.environ, "APPTAINER_CONTAINLIBS": str(tmp_path / "libcuda.so.1")}
    said = apptainer("exec", image, "/usr/bin/python3", "-c", SEARCH, env=bound).stdout.split()
    assert said == ["['/usr/local/cuda/compat/lib']", "False", "True", "/.singularity.d/libs/libcuda.so.1"]


def in_image(apptainer: Command, image: Path, program: str) -> str:
    """What a program prints that imports our modules in an image, as a worker does."""
    start = "import sys; sys.path[:0] = ['/sifmark']; sys.path.append('/sifmark-site'); "
    interpreter = load_recipe(recipe_of(image)).base.interpreter or "python3"
    return apptainer("exec", image, interpreter, "-s", "-c", start + program).stdout.strip()


@pytest.mark.full
def test_the_base_for_intel_gpus_has_a_compiler_and_no_headers(apptainer: Command) -> None:
    """In the base itself: an image needs a wheel of PyTorch's own index."""
    try:
        base = make_plan("xpu", with_options(load_settings(), bases="stand-in")).base
    except SifmarkError as error:
        pytest.skip(error.cause)
    asked = (
        "import sys; sys.path.insert(0, '/sifmark'); from entrypoints.system import gpu_software as g; "
        "print(g.c_compiler({}), g.fault_of_compiler(g.c_compiler({})))"
    )
    where = ("--bind", f"{paths.ROOT}:/sifmark", f"docker://{base.pull}", "/usr/bin/python3", "-c", asked)
    said = apptainer("exec", *where, env={**os.environ, "APPTAINER_NOHTTPS": "true"}).stdout.strip()
    headers = "Triton needs the headers of Python, and there is no /usr/local/include/python3.12/Python.h"
    assert said == f"/usr/bin/gcc {headers}"


@pytest.mark.full
@pytest.mark.parametrize("image", ["rocm"], indirect=True)
def test_rocm_10_is_found_in_its_python_package(apptainer: Command, image: Path) -> None:
    program = (
        "import os; from entrypoints.system import gpu_software as g; from entrypoints.metering.amd import libraries; "
        "print(g.c_compiler({})); print(g.fault_of_compiler(g.c_compiler({}))); "
        "print([path for path in sys.path if path.endswith('amd_smi')])"
    )
    compiler, fault, module = in_image(apptainer, image, program).splitlines()
    sdk = "/opt/venv/lib/python3.14/site-packages/_rocm_sdk_core"
    assert (compiler, module) == (f"{sdk}/lib/llvm/bin/clang", f"['{sdk}/share/amd_smi']")
    assert fault == "Triton needs the headers of Python, and there is no /usr/include/python3.14/Python.h"


@pytest.mark.full
@pytest.mark.full
@pytest.mark.parametrize("image", ["cuda_vllm", "rocm_vllm"], indirect=True)
def test_a_stand_in_without_an_engine_does_not_serve(apptainer: Command, image: Path) -> None:
    llama = image.with_name(f"llama_1b-{recipe_of(image)}.sif")
    done = apptainer("run", llama, "--task", "serving", "--engine", "vllm", "--smoke", "--device", "cpu", check=False)
    status = answer(done)["status"]
    assert (done.returncode, status["state"]) == (3, "unsupported")
    assert "No module named 'vllm'" in status["message"] and "cuda_vllm" in status["message"]


@pytest.mark.parametrize("image", ["cuda12"], indirect=True)
def test_packages_of_an_older_base_are_not_mixed_with_ours(apptainer: Command, image: Path) -> None:
    """Results are validated by our jsonschema."""
    result = answer(apptainer("run", image, "--smoke", "--device", "cpu"))
    assert result["status"]["state"] == "completed"
    assert result["provenance"]["software"]["jsonschema"] == "4.26.0"
    assert in_image(apptainer, image, "import attr; print(attr.__version__)") == "21.2.0", "the base comes first"


@pytest.mark.full
@pytest.mark.parametrize("image", ["xpu_ipex"], indirect=True)
def test_a_python_that_only_root_may_use_is_passed_over(as_user: Command, image: Path, home: Path) -> None:
    image = Path(shutil.copy(image, home / image.name))
    decoy = as_user("apptainer", "exec", image, "/opt/venv/bin/python3", check=False)
    assert decoy.returncode != 0
    result = answer(as_user("apptainer", "run", image, "--smoke", "--device", "cpu"))
    assert result["status"]["state"] == "completed"


@pytest.mark.full
def test_a_base_whose_python_only_root_may_use_is_refused(site: Site, tmp_path: Path) -> None:
    try:
        make_plan("xpu_ipex", with_options(load_settings(), bases="stand-in"))
    except SifmarkError as error:
        pytest.skip(error.cause)
    copy = copy_project(tmp_path / "clone")
    recipe = copy / "recipes" / "xpu_ipex.toml"
    recipe.write_text(recipe.read_text().replace('"/usr/bin/python3"', '"/opt/venv/bin/python3"'))
    done = site.using(PYTHONPATH=str(copy)).inv("build", "xpu_ipex", check=False)
    assert done.returncode == 1 and "/root/.local/bin/python3.11 is in a home folder" in done.stderr
    assert "the base has /opt/venv/bin/python3" in done.stderr


def test_each_vendor_has_workloads() -> None:
    assert all(SMALL in workloads_of(recipe) for recipe in VENDORS)
