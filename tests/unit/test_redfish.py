"""The power of a node by Redfish: documents as DMTF publishes them (DSP2043, public-rackmount1), over real TLS."""

import base64
import datetime
import ipaddress
import json
import ssl
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from unit.refusals import refused
from unit.registry_double import Answering, running

import sifmark
from sifmark import metering, redfish
from sifmark.core.errors import UsageError
from sifmark.core.paths import import_shared
from sifmark.core.schemas import errors_of
from sifmark.redfish import Redfish, read_bmc

USER, PASSWORD = "reader", "s3cret-of-the-bmc"
ROOT = "/redfish/v1/Chassis"
PERIOD = 0.1  # s
METRICS = {
    "@odata.type": "#EnvironmentMetrics.v1_3_1.EnvironmentMetrics",
    "Id": "EnvironmentMetrics",
    "Name": "Chassis Environment Metrics",
    "PowerWatts": {"DataSourceUri": f"{ROOT}/1U/Sensors/TotalPower", "Reading": 374},
    "@odata.id": f"{ROOT}/1U/EnvironmentMetrics",
}
POWER = {
    "@odata.type": "#Power.v1_5_0.Power",
    "Id": "Power",
    "Name": "Power",
    "PowerControl": [
        {
            "@odata.id": f"{ROOT}/1U/Power#/PowerControl/0",
            "MemberId": "0",
            "Name": "Server Power Control",
            "PowerConsumedWatts": 344,
            "PowerRequestedWatts": 800,
            "PowerCapacityWatts": 800,
            "PhysicalContext": "Intake",
        },
        {"@odata.id": f"{ROOT}/1U/Power#/PowerControl/1", "MemberId": "1", "PowerConsumedWatts": 120},
    ],
    "@odata.id": f"{ROOT}/1U/Power",
}


def chassis(name: str, *parts: str) -> dict[str, Any]:
    links = {part: {"@odata.id": f"{ROOT}/{name}/{part}"} for part in parts}
    return {"@odata.type": "#Chassis.v1_26_0.Chassis", "Id": name, "@odata.id": f"{ROOT}/{name}", **links}


def collection(*names: str) -> dict[str, Any]:
    return {"Members@odata.count": len(names), "Members": [{"@odata.id": f"{ROOT}/{name}"} for name in names]}


class Controller(ThreadingHTTPServer):
    """A BMC that has some documents for whoever knows the password."""

    documents: dict[str, Any]
    asked: list[str]
    elsewhere = ""  # where it redirects to


class _Handler(Answering):
    server: Controller
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer would take 40 ms

    def say(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {login}":
            self.answer(401)
        elif self.server.elsewhere:
            self.answer(302, Location=self.server.elsewhere)
        elif self.path in self.server.documents:
            content = self.server.documents[self.path]
            self.answer(200, content if isinstance(content, bytes) else json.dumps(content).encode())
        else:
            self.answer(404)

    do_GET = do_POST = do_PATCH = say  # noqa: N815


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, as BMCs have, and its key."""
    key, folder = ec.generate_private_key(ec.SECP256R1()), tmp_path_factory.mktemp("tls")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bmc")])
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = built.add_extension(alternative, critical=False).sign(key, hashes.SHA256())
    (folder / "bmc.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "bmc.key").write_bytes(private)
    return folder / "bmc.pem", folder / "bmc.key"


@pytest.fixture
def bmc(certificate: tuple[Path, Path]) -> Iterator[Controller]:
    with Controller(("127.0.0.1", 0), _Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        server.asked = []
        server.documents = {
            ROOT: collection("1U", "Shelf"),
            f"{ROOT}/1U": chassis("1U", "EnvironmentMetrics", "Power"),
            f"{ROOT}/1U/EnvironmentMetrics": dict(METRICS),
            f"{ROOT}/1U/Power": POWER,
            f"{ROOT}/Shelf": chassis("Shelf", "Thermal"),
        }
        with running(server):
            yield server


def written(folder: Path, bmc: Controller, ca: Path | None, **changes: str) -> Path:
    """Write a file about a BMC, with other values or without those that are empty."""
    values = {"url": f"https://127.0.0.1:{bmc.server_address[1]}", "user": USER, "password": PASSWORD}
    values |= {"ca": str(ca)} if ca else {}
    file = folder / "bmc.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in (values | changes).items() if value))
    file.chmod(0o600)
    return file


@pytest.fixture
def file(bmc: Controller, certificate: tuple[Path, Path], tmp_path: Path) -> Path:
    return written(tmp_path, bmc, certificate[0])


def reason_of(file: Path) -> str:
    with pytest.raises(import_shared("metering.meter").MeterError) as caught:
        Redfish(read_bmc(file)).read()
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_the_chassis_that_has_a_reading_is_the_node(bmc: Controller, file: Path) -> None:
    meter = Redfish(read_bmc(file))
    assert list(meter.read().watts) == [374.0] and meter.facts.devices == ("127.0.0.1, 1U",)
    assert (meter.facts.scope, meter.facts.has_counter) == ("node", False) and meter.facts.averaging_reason
    bmc.documents[f"{ROOT}/1U/EnvironmentMetrics"] = {**METRICS, "PowerWatts": {"Reading": 380.5}}
    assert list(meter.read().watts) == [380.5]
    meter.close()
    assert all(line.startswith("GET ") for line in bmc.asked), "nothing is changed"


def test_older_firmware_has_power_control_whose_first_member_is_the_server(bmc: Controller, file: Path) -> None:
    del bmc.documents[f"{ROOT}/1U/EnvironmentMetrics"]["PowerWatts"]
    meter = Redfish(read_bmc(file))
    assert list(meter.read().watts) == [344.0]
    meter.close()


def test_a_block_is_metered_by_a_bmc_beside_other_meters(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redfish, "PERIOD", PERIOD)
    monkeypatch.setattr(metering, "BMC_PERIOD", PERIOD)
    trace = tmp_path / "trace.json"
    samples = [{"at": 0, "watts": [50]}, {"at": 600, "watts": [50]}]
    trace.write_text(json.dumps({"scope": "board", "devices": ["card"], "update_period": PERIOD, "samples": samples}))
    with sifmark.meter(f"replay:{trace}", period=PERIOD, bmc=file) as energy:
        time.sleep(2.3)
    assert list(errors_of(metering.SCHEMA, energy.document)) == [] and PASSWORD not in json.dumps(energy.document)
    (node,) = [each for each in energy.document["meters"] if each["source"] == "redfish"]
    assert set(energy.joules) == {"replay", "redfish"} and energy.watts["redfish"] == pytest.approx(374), node
    assert (node["scope"], node["method"]) == ("node", "integral")


def test_a_bmc_that_does_not_answer_is_missing_with_the_reason(file: Path, bmc: Controller, tmp_path: Path) -> None:
    bmc.documents.clear()
    with sifmark.meter("replay:/nowhere", bmc=file) as energy:
        pass
    reasons = {each["meter"]: each["reason"] for each in energy.document["missing"]}
    assert "answers with 404" in reasons["redfish"] and "redfish" not in energy.joules


def test_a_certificate_that_nobody_trusts_and_one_of_another_host(
    bmc: Controller, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    assert "is not trusted" in reason_of(written(tmp_path, bmc, None))
    port = bmc.server_address[1]
    assert "is not trusted" in reason_of(written(tmp_path, bmc, certificate[0], url=f"https://localhost:{port}"))
    assert not bmc.asked, "the password went nowhere"


def test_a_wrong_password_and_a_redirection(bmc: Controller, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    assert "answers with 401, which refuses reader" in reason_of(written(tmp_path, bmc, certificate[0], password="x"))
    bmc.elsewhere = f"https://127.0.0.1:{bmc.server_address[1]}/redfish/v1/other"
    bmc.asked.clear()
    assert "answers with 302" in reason_of(written(tmp_path, bmc, certificate[0]))
    assert len(bmc.asked) == 1


def test_several_chassis_with_readings_have_to_be_named(
    bmc: Controller, certificate: tuple[Path, Path], file: Path, tmp_path: Path
) -> None:
    bmc.documents[f"{ROOT}/Shelf"] = chassis("Shelf", "Power")
    bmc.documents[f"{ROOT}/Shelf/Power"] = POWER
    assert "1U, Shelf: choose one" in reason_of(file)
    meter = Redfish(read_bmc(written(tmp_path, bmc, certificate[0], chassis="Shelf")))
    assert list(meter.read().watts) == [344.0]
    meter.close()


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"no",
        b"",
        b"[" * 100_000,
        b" " * (1 << 21),
        {"Members": 1},
        {"Members": [{"@odata.id": "//elsewhere/"}, {"@odata.id": "/redfish/v1/a b\r\nX: y"}, {"@odata.id": 1}, None]},
        {"Members": [{"@odata.id": f"{ROOT}/Strange"}]},
        {"Members": [{"@odata.id": f"{ROOT}/Endless"}]},
    ],
)
def test_documents_that_are_none(bmc: Controller, file: Path, content: Any) -> None:
    bmc.documents[ROOT] = content
    bmc.documents[f"{ROOT}/Strange"] = {"Power": {"@odata.id": f"{ROOT}/Strange/Power"}}
    bmc.documents[f"{ROOT}/Strange/Power"] = {"PowerControl": [{"PowerConsumedWatts": True}], "PowerWatts": [1]}
    bmc.documents[f"{ROOT}/Endless"] = {"Power": {"@odata.id": f"{ROOT}/Endless/Power"}}
    bmc.documents[f"{ROOT}/Endless/Power"] = b'{"PowerWatts": {"Reading": 1' + b"0" * 400 + b"}}"
    assert reason_of(file)


def test_a_file_that_others_may_read_is_refused_and_the_password_is_never_shown(
    bmc: Controller, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    for mode in (0o640, 0o604, 0o660):
        file = written(tmp_path, bmc, None)
        file.chmod(mode)
        with refused(UsageError, "path-shared", "chmod 600") as caught:
            read_bmc(file)
        assert PASSWORD not in str(caught.value)
    assert PASSWORD not in repr(read_bmc(written(tmp_path, bmc, certificate[0])))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"url": "http://127.0.0.1"}, "https"),
        ({"url": "https://user:word@127.0.0.1"}, "https"),
        ({"url": "https://127.0.0.1/redfish"}, "https"),
        ({"url": "https://127.0.0.1:port"}, "url"),
        ({"user": ""}, "lacks user"),
        ({"pasword": "x"}, "pasword"),
        ({"chassis": "../Managers"}, "chassis"),
    ],
)
def test_what_a_file_must_say(bmc: Controller, tmp_path: Path, changes: dict[str, str], word: str) -> None:
    with refused(UsageError, "settings-invalid", word) as caught:
        read_bmc(written(tmp_path, bmc, None, **changes))
    assert PASSWORD not in str(caught.value)


def test_a_file_that_is_not_there_and_one_that_is_no_toml(tmp_path: Path) -> None:
    with refused(UsageError, "file-unreadable"):
        read_bmc(tmp_path / "nowhere.toml")
    (tmp_path / "bmc.toml").write_text("password = ")
    (tmp_path / "bmc.toml").chmod(0o600)
    with refused(UsageError, "settings-invalid", "TOML"):
        read_bmc(tmp_path / "bmc.toml")
