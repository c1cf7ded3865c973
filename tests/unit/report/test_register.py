"""A register: signed results of several sites, whose each number is, what is ranked, and what is named instead."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from unit.keys import make_key
from unit.refusals import refused
from unit.report.samples import sample
from unit.report.samples import write as write_results
from unit.report.sites import Elements, broken_links, pages, write

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.keys import key_id
from sifmark.report.site.register import Ranking
from sifmark.report.site.site import Site, SiteOptions, make_site
from sifmark.results.envelope import envelope_path, sign_results


@dataclass(frozen=True)
class Register:
    """Folders of several sites, each signed with a key of its own, and the keys that are trusted."""

    root: Path
    signers: dict[str, str]  # names of keys by site
    options: SiteOptions

    @property
    def results(self) -> Path:
        return self.root / "sites"

    def made(self) -> Site:
        return make_site(self.results, self.options)

    def name_of(self, site: str) -> str:
        return self.signers[site]


def of_site(
    register: Register, folder: str, key: str = "", like: str = "", batch: int = 8, **changes: Any
) -> list[Path]:
    """Write three results of a site, or `like` those of another, signed with its key or a given one; return them."""
    shown = [sample(like or folder, "pictures", batch, repeat, **changes) for repeat in (1, 2, 3)]
    files = sorted(write_results(register.results / folder, shown).glob("*.json"))
    for file in files:
        sign_results(file, register.root / f"{key or folder}.pem")
    return files


@pytest.fixture
def register(tmp_path: Path) -> Register:
    """Three sites whose keys are trusted, of which `beta` is faster and the other two are equal; nothing else."""
    public = {name: make_key(tmp_path, name)[1] for name in ("alpha", "beta", "gamma", "mallory")}
    trusted = tuple(path for name, path in public.items() if name != "mallory")
    names = {name: key_id(Path(path)) for name, path in public.items()}
    register = Register(tmp_path, names, SiteOptions(most_charts=0, processes=1, trusted_keys=trusted))
    for site in ("alpha", "beta", "gamma"):
        of_site(register, site)
    return register


def ranks(ranking: Ranking) -> dict[str, str]:
    return {each.row.signer.partition(".pub")[0]: each.rank for each in ranking.systems}


def test_each_number_is_from_a_key_and_a_rank_is_what_verdicts_leave(register: Register) -> None:
    site = register.made()
    (ranking,) = site.rankings
    assert ranks(ranking) == {"beta": "1", "alpha": "2 to 3", "gamma": "2 to 3"}
    assert {each.row.signer for each in ranking.systems} == {
        register.name_of(name) for name in ("alpha", "beta", "gamma")
    }
    assert "slower" in ranking.systems[1].compared and not ranking.systems[0].compared
    assert site.results.signers == {register.name_of(name): 3 for name in ("alpha", "beta", "gamma")}
    assert not site.results.unsigned and (site.by, site.noun) == ("signer", "signer")


def test_the_page_of_rankings_names_the_signer_of_each_number_and_its_links_lead_somewhere(
    register: Register, tmp_path: Path
) -> None:
    written = write(register.results, tmp_path / "public", register.options)
    text = Elements(written["ranking.html"]).text
    assert text.index(register.name_of("beta")) < text.index(register.name_of("alpha"))
    assert "ranking.html" in written["index.html"] and not list(broken_links(tmp_path / "public"))
    by_site = write(register.results, tmp_path / "by-site", replace(register.options, by="site"))
    for name in ("ranking.html", "results.html", "workloads/pictures.html"):
        assert register.name_of("gamma") in Elements(by_site[name]).text


def test_without_signatures_there_is_no_register(register: Register, tmp_path: Path) -> None:
    written = write(register.results, tmp_path / "public")
    assert "ranking.html" not in written and "ranking" not in written["index.html"]
    assert not any(register.name_of("alpha") in page for page in written.values())


def test_what_nobody_vouches_for_is_named_with_the_reason_and_not_ranked(register: Register, tmp_path: Path) -> None:
    changed = of_site(register, "beta")[0]
    document = json.loads(changed.read_text())
    document["metrics"]["throughput"]["value"] *= 1.001
    changed.write_text(json.dumps(document))
    envelope_path(of_site(register, "gamma")[1]).unlink()
    of_site(register, "delta", key="mallory")
    site = register.made()
    (ranking,) = site.rankings
    assert ranks(ranking) == {"alpha": "1", "beta": "", "gamma": ""}
    assert {each.reason for each in ranking.systems[1:]} == {"2 repeats where 3 are needed"}
    reasons = dict(each.split(": ", 1) for each in site.results.unsigned)
    assert reasons["beta/000.json"] == "it differs from what was signed"
    assert reasons["gamma/001.json"] == "it is not signed"
    assert {reasons[f"delta/00{number}.json"] for number in range(3)} == {
        "its signature is by none of the keys that this site trusts, or is not valid"
    }
    for name, page in write(register.results, tmp_path / "public", register.options).items():
        assert ("delta/000.json" in page) == (name in ("index.html", "ranking.html")), name


def test_an_envelope_of_another_file_and_one_that_is_damaged(register: Register) -> None:
    first, second, _ = of_site(register, "alpha")
    shutil.copyfile(envelope_path(second), envelope_path(first))
    envelope_path(second).write_text("{")
    first_reason, second_reason = register.made().results.unsigned
    assert first_reason == "alpha/000.json: it differs from what was signed"
    assert (
        second_reason.startswith("alpha/001.json: 001.json.dsse is no DSSE envelope") and "/sites/" not in second_reason
    )


def test_whoever_signs_the_run_of_another_site_does_not_get_its_number(register: Register) -> None:
    copy = register.results / "gamma" / "copy.json"
    copy.write_bytes((register.results / "alpha" / "000.json").read_bytes())
    sign_results(copy, register.root / "gamma.pem")
    site = register.made()
    (reason,) = site.results.unsigned
    assert reason.startswith(f"gamma/copy.json: {register.name_of('gamma')} has signed it")
    assert register.name_of("alpha") in reason and site.results.signers[register.name_of("alpha")] == 3
    sign_results(copy, register.root / "alpha.pem")  # by the same key it is a copy like any other
    again = register.made().results
    assert (again.unsigned, again.duplicates) == ([], 1)


def test_repeats_of_two_signers_are_never_averaged_although_all_else_is_equal(register: Register) -> None:
    of_site(register, "gamma", like="alpha", host__hostname={"value": "another-node"})
    (ranking,) = register.made().rankings
    assert {each.row.signer: each.row.repeats for each in ranking.systems} == {
        register.name_of(name): 3 for name in ("alpha", "beta", "gamma")
    }


def test_what_compare_refuses_together_is_ranked_apart_with_the_reason(register: Register) -> None:
    of_site(register, "gamma", provenance__stand_in=True)
    (ranking,) = register.made().rankings
    assert ranks(ranking) == {"beta": "1", "alpha": "2"} and ranking.kind == "provenance.stand_in false"
    (reason,) = ranking.apart
    assert reason.startswith("provenance.stand_in differs (") and "test base" in reason
    of_site(register, "alpha", provenance__stand_in=True)
    (ranking,) = register.made().rankings
    assert ranks(ranking) == {"alpha": "1 to 2", "gamma": "1 to 2"} and ranking.kind == "provenance.stand_in true"


def test_other_settings_and_other_numbers_of_devices_are_no_competition(register: Register) -> None:
    of_site(register, "beta", batch=16)
    (ranking,) = register.made().rankings
    assert ranks(ranking) == {"alpha": "1 to 2", "gamma": "1 to 2"}


def test_a_busy_host_has_no_rank(register: Register) -> None:
    of_site(register, "beta", conditions_after__run_delay={"value": 85.0, "unit": "%"})
    (ranking,) = register.made().rankings
    assert ranks(ranking) == {"alpha": "1 to 2", "gamma": "1 to 2", "beta": ""}
    assert ranking.systems[-1].reason == "busy host"


def test_a_register_is_the_same_whatever_reads_it_and_has_at_least_one_key(register: Register, tmp_path: Path) -> None:
    first = write(register.results, tmp_path / "one", register.options)
    second = write(register.results, tmp_path / "two", replace(register.options, processes=2))
    assert first == second == pages(tmp_path / "one")
    with refused(UsageError, "no-trusted-key"):
        make_site(register.results, replace(register.options, trusted_keys=()))
    with refused(UsageError, "invalid-option", "anonymous"):
        make_site(register.results, replace(register.options, anonymous=True))
    with refused(SifmarkError, "signature-untrusted", "alpha/000.json", "none of the keys"):
        make_site(register.results, replace(register.options, trusted_keys=(str(register.root / "mallory.pub"),)))
