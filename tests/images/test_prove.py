"""A proof of this machine's processor from end to end: with the image, and by a PyTorch without one."""

import json
from pathlib import Path

import jsonschema
import pytest
from images.sites import Site

from sifmark.core import paths

TORCH = paths.CHECKOUT / ".venvs" / "torch_new" / "bin" / "python"
SCHEMA = paths.SCHEMAS / "proof-1.0.json"


@pytest.mark.full
@pytest.mark.parametrize("how", [("--image", "cpu"), ("--python", str(TORCH))], ids=["image", "outside"])
def test_what_holds_on_a_cpu(how: tuple[str, str], built: Site, tmp_path: Path) -> None:
    folder = tmp_path / "proof"
    words = ("--workload", "lstm", "--minutes", "10", "--output", str(folder))
    done = built.inv("device.prove", *how, *words, check=False)
    proof = json.loads((folder / "proof.json").read_text())
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(proof)
    states = {(each["claim"], each["subject"]): each["state"] for each in proof["findings"]}
    failed = [subject for subject, state in states.items() if state == "failed"]
    assert done.returncode == (7 if failed else 0), done.stderr[-2000:]
    assert states["device", "lstm"] == states["correctness", "lstm fp32"] == "held"
    assert set(failed) <= {("repeatability", "lstm")}, "a busy machine repeats badly, and has no time for the rest"
    page = (folder / "proof.html").read_text()
    assert "What the doctor says of this host" in page and "<script" not in page
    assert built.inv("results.validate", str(folder / "results"), check=False).returncode == 0
