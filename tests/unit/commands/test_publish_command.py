"""The steps of publishing: their order, what ends them, and the summary. tests/images publishes a real image."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest
from unit.fakes import FakeEngine

from sifmark.commands.registry import show_publication
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.engines import Engine
from sifmark.publish.publication import Publication, carry_out
from sifmark.publish.reports import PullReport, PushReport, SigningKey, SignReport
from sifmark.publish.stores import StoreListing, open_store
from sifmark.trust.image import CheckSkipped
from sifmark.trust.stages import Stage

KEY = SigningKey(Path("site.pem"))
OPTIONAL = ("sign", "signature", "catalog")


@dataclass
class FakePublisher:
    """Notes what is asked of it."""

    SIGNS_IN_REGISTRY: bool = False
    PULL_COMMAND: str = "apptainer pull oras://"
    calls: list[str] = field(default_factory=list)

    def sign(
        self, name: str, key: SigningKey, registry: str, tag: str, engine: Engine, settings: Settings
    ) -> SignReport:
        self.calls.append(f"sign {name} {registry}".rstrip())
        return SignReport(name, self.SIGNS_IN_REGISTRY, f"{name}: signed")

    def push(self, name: str, registry: str, tag: str, engine: Engine, settings: Settings) -> PushReport:
        self.calls.append(f"push {name} {registry}")
        return PushReport("x/cpu@sha256:0", "sha256:0", "sha256:1", ("x/cpu",), "sent")

    def pull(self, name: str, registry: str, tag: str, engine: Engine, settings: Settings, signed: bool) -> PullReport:
        raise NotImplementedError

    def listing(self, registry: str, tag: str, settings: Settings) -> StoreListing:
        return open_store(registry, tag, settings)


def publication(site: Settings, publisher: FakePublisher, key: SigningKey | None = KEY) -> Publication:
    return Publication("cpu", "registry", "", key, "", FakeEngine(site), publisher, site)


def test_the_recipe_is_verified_by_its_smallest_image(site: Settings) -> None:
    """By that of the recipe, every workload would be started, and the largest fit on few hosts."""
    work = publication(site, FakePublisher())
    assert isinstance(work.engine, FakeEngine)
    work.engine.add("image_compression-cpu", workload="image_compression")
    (check,) = work._require_passed([Stage("address", lambda image: [image.address])], signed=False)
    assert check.detail == "fake:image_compression-cpu"


@pytest.mark.parametrize(
    ("in_registry", "order", "calls"),
    [
        (False, ["sign", "signature", "push"], ["sign cpu", "push cpu registry"]),
        (True, ["push", "sign", "signature"], ["push cpu registry", "sign cpu registry"]),
    ],
)
def test_a_file_is_signed_before_it_is_pushed_and_a_docker_image_after(
    site: Settings, in_registry: bool, order: list[str], calls: list[str]
) -> None:
    publisher = FakePublisher(SIGNS_IN_REGISTRY=in_registry)
    steps = publication(site, publisher).steps()
    assert list(steps) == ["build", "verify", *order, "catalog"]
    for name in order:
        if name != "signature":
            steps[name]()
    assert publisher.calls == calls


def test_what_was_not_asked_for_is_skipped(site: Settings) -> None:
    steps = publication(site, FakePublisher(), key=None).steps()
    finished = {step.check.name: step.check for step in carry_out({name: steps[name] for name in OPTIONAL})}
    assert {check.status.value for check in finished.values()} == {"skipped"}
    assert "--key" in finished["sign"].detail and "--output" in finished["catalog"].detail
    with pytest.raises(CheckSkipped, match="--trusted-key"):
        publication(site, FakePublisher()).check_signature()


def test_a_failed_verification_names_its_stage(site: Settings) -> None:
    with pytest.raises(SifmarkError, match="stage trust failed: ") as error:
        publication(site, FakePublisher()).verify()  # there is no such image
    assert error.value.code == "verification-failed"


class Broken(Publication):
    """A publication whose second step fails."""

    def steps(self) -> dict[str, "object"]:  # type: ignore[override]
        def fail() -> str:
            raise SifmarkError("it does not answer", "is it up?", code="registry-unreachable")

        return {"build": lambda: "built", "push": fail, "catalog": lambda: "never"}


def test_a_failure_ends_the_work_after_its_summary(
    site: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    broken = Broken("cpu", "r", "", None, "", FakeEngine(site), FakePublisher(), site)
    with pytest.raises(SifmarkError) as error:
        show_publication(broken, "json", junit=str(tmp_path / "publish.xml"))
    assert error.value.code == "registry-unreachable"
    printed = capsys.readouterr()
    steps = {step["step"]: step for step in json.loads(printed.out)["steps"]}
    assert [step["outcome"] for step in steps.values()] == ["passed", "failed", "skipped"]
    assert (steps["push"]["code"], steps["push"]["remedy"]) == ("registry-unreachable", "is it up?")
    assert printed.err.splitlines() == ["::group::build", "::endgroup::", "::group::push", "::endgroup::"]
    (suite,) = ElementTree.parse(tmp_path / "publish.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [case.get("name") for case in suite] == ["build", "push", "catalog"]
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### Published: cpu\n\n| step") and "| push | failed |" in " ".join(summary.split())
    with pytest.raises(SifmarkError):
        show_publication(broken, "table")
    table = capsys.readouterr().out
    assert [line.split()[:2] for line in table.splitlines()] == [
        ["passed", "build"],
        ["failed", "push"],
        ["skipped", "catalog"],
    ]
