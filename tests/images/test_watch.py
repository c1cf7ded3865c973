"""docs/results/watch.md: what results.export writes passes through node_exporter into Prometheus, which answers the
dashboard and raises the alerts of the page."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import socket
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import documentation
import documents
import pytest
from unit.studies.histories import nights, write_nights

from sifmark.commands.results import export_results
from sifmark.core import paths

PAGE = paths.CHECKOUT / "docs" / "results" / "watch.md"
DASHBOARD = json.loads((PAGE.parent / "grafana.json").read_text())
VARIABLES = ("$site", "$workload", "$accelerator")
QUERIES = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
PATIENCE = 60.0  # seconds
Ask = Callable[..., Any]


def free_port() -> int:
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def running(*argv: object) -> Iterator[None]:
    process = subprocess.Popen(list(map(str, argv)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is exported of a node: three repeats with energy, and a run that ran out of memory."""
    folder = tmp_path_factory.mktemp("export")
    energy: dict[str, Any] = {"metrics__energy_per_unit": {"value": 2.0, "unit": "J/image"}}
    write_nights(folder / "tonight", nights(1, 3), site="alpha", **energy)
    failed = (documents.EXAMPLES / "out_of_memory.json").read_text()
    (folder / "tonight" / "failed.json").write_text(failed)
    (folder / "textfile").mkdir()
    export_results([str(folder / "tonight")], str(folder / "textfile" / "sifmark.prom"))
    return folder


@pytest.fixture(scope="module")
def ask(consumers: Path, exported: Path) -> Iterator[Ask]:
    """Asks a Prometheus that has read the export once, with the page's alerts."""
    (rules,) = ("\n".join(each.lines) for each in documentation.blocks(PAGE) if "groups:" in each.lines)
    (exported / "rules.yml").write_text(rules)
    exporter, server = free_port(), free_port()
    target = {"job_name": "nodes", "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]}
    scrape = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "scrape_configs": [target]}
    (exported / "prometheus.yml").write_text(json.dumps({**scrape, "rule_files": [str(exported / "rules.yml")]}))
    programs = consumers / "usr" / "bin"

    def answer(path: str, **query: str) -> Any:
        with urlopen(f"http://127.0.0.1:{server}/api/v1/{path}?{urlencode(query)}") as response:
            return json.load(response)["data"]

    with ExitStack() as started:
        textfile = f"--collector.textfile.directory={exported / 'textfile'}"
        started.enter_context(
            running(
                *(programs / "prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile"),
                *(textfile, f"--web.listen-address=127.0.0.1:{exporter}"),
            )
        )
        started.enter_context(
            running(
                *(programs / "prometheus", f"--config.file={exported / 'prometheus.yml'}"),
                *(f"--storage.tsdb.path={exported / 'data'}", f"--web.listen-address=127.0.0.1:{server}"),
            )
        )
        wait_for(lambda: answer("query", query="sifmark_runs")["result"])
        yield answer


def wait_for(happened: Callable[[], Any]) -> Any:
    """What happens within some time, from programs that may not answer yet."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if found := happened():
                return found
        except URLError:
            pass
        time.sleep(0.2)
    pytest.fail(f"nothing within {PATIENCE:g} s")


@pytest.mark.full
def test_promtool_has_nothing_to_say(consumers: Path, exported: Path) -> None:
    with (exported / "textfile" / "sifmark.prom").open() as stream:
        argv = [str(consumers / "usr" / "bin" / "promtool"), "check", "metrics"]
        done = subprocess.run(argv, stdin=stream, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.full
@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[f"{title}-{at}" for at, (title, _) in enumerate(QUERIES)])
def test_prometheus_answers_each_query_of_the_dashboard(ask: Ask, title: str, query: str) -> None:
    for name in VARIABLES:
        query = query.replace(name, ".*")
    assert ask("query", query=query)["result"], title


@pytest.mark.full
def test_every_sample_of_the_file_arrives(ask: Ask, exported: Path) -> None:
    lines = (exported / "textfile" / "sifmark.prom").read_text().splitlines()
    arrived = ask("query", query='{__name__=~"sifmark_.*"}')["result"]
    assert len(arrived) == len([line for line in lines if not line.startswith("#")])
    assert ask("query", query="node_textfile_scrape_error")["result"][0]["value"][1] == "0"


@pytest.mark.full
def test_the_alert_of_the_page_is_raised(ask: Ask) -> None:
    def raised() -> Any:
        return [each["labels"] for each in ask("alerts")["alerts"]]

    (labels,) = wait_for(raised)
    assert (labels["alertname"], labels["outcome"]) == ("NoMeasurement", "out_of_memory")
