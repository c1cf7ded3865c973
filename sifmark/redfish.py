"""The power of a node as its BMC reads it: a meter over Redfish, by requests that change nothing.

DMTF DSP0266 (protocol) and DSP0268 (schemas). Of a chassis it is `PowerWatts.Reading` of EnvironmentMetrics, and with
older firmware `PowerConsumedWatts` of the first member of `PowerControl` of Power.
"""

import base64
import http.client
import json
import os
import re
import ssl
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sifmark.core.errors import UsageError
from sifmark.core.paths import import_shared

PERIOD = 1.0  # s between two readings: BMCs take some tenths of a second for an answer
PATIENCE = 10.0  # s for an answer
_ROOT = "/redfish/v1/"
_LARGEST = 1 << 20  # bytes of a document
_MOST_WATTS = 1e7  # of a chassis: no rack has more
_KEYS = {"url", "user", "password", "ca", "chassis"}
_EXAMPLE = (
    'url = "https://bmc.site.example", user = "reader", password = "...", and perhaps ca = "FILE.pem", chassis = "1"'
)
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Bmc:
    """Where a BMC is, and who asks it."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    ca: Path | None = None  # certificates that its own is checked with; None: those of the system
    chassis: str = ""  # empty for the only one that has a reading of power


def read_bmc(file: Path) -> Bmc:
    """Return what a TOML file says of a BMC. Raises UsageError if others may read it, or if it lacks something."""
    text = _private_text(file)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _unusable(file, f"is no TOML: {error}") from None
    if missing := [name for name in ("url", "user", "password") if not values.get(name)]:
        raise _unusable(file, f"lacks {missing[0]}")
    if wrong := sorted(name for name in values if name not in _KEYS or not isinstance(values[name], str)):
        raise _unusable(file, f"has {wrong[0]}, which is unknown or no text")
    try:
        url = urlsplit(values["url"])
        port = url.port or 443
    except ValueError:
        raise _unusable(file, "has a url that is none") from None
    if url.scheme != "https" or not url.hostname or url.username or url.path.strip("/"):
        raise _unusable(file, "has another url than https://HOST or https://HOST:PORT")
    if values.get("chassis") and not _NAME.fullmatch(values["chassis"]):
        raise _unusable(file, "has a chassis that is no name")
    ca = file.parent / Path(values["ca"]).expanduser() if values.get("ca") else None
    return Bmc(url.hostname, port, values["user"], values["password"], ca, values.get("chassis", ""))


def _private_text(file: Path) -> str:
    """Return the text of a file of this user that nobody else may read. Raises UsageError."""
    try:
        with file.open(encoding="utf-8") as stream:
            status = os.fstat(stream.fileno())
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or status.st_uid != os.geteuid():
                remedy = f"take their rights away: chmod 600 {file}"
                raise UsageError(f"others may read the password in {file}", remedy, code="path-shared")
            return stream.read(_LARGEST)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{file} does not read: {error}", "name another file: --bmc", code="file-unreadable"
        ) from error


def _unusable(file: Path, what: str) -> UsageError:
    return UsageError(f"{file} {what}", f"it has {_EXAMPLE}", code="settings-invalid")


class Redfish:
    """A meter of one device, the node, by a connection that stays open. `read` is called from one thread."""

    def __init__(self, bmc: Bmc) -> None:
        """Find the reading. Raises MeterError if there is none, or several."""
        meter = import_shared("metering.meter")
        self.bmc, self._error, self._reading = bmc, meter.MeterError, meter.Reading
        self._connection = http.client.HTTPSConnection(
            bmc.host, bmc.port, timeout=PATIENCE, context=self._checked(bmc.ca)
        )
        found = dict(self._readings())
        if len(found) != 1:
            names = f"{', '.join(found)}: choose one by chassis" if found else "none has a reading of power"
            raise self._error(f"of the chassis of {bmc.host}, {names}")
        ((self._chassis, self._place),) = found.items()
        self.facts = meter.MeterFacts(
            source="redfish",
            scope="node",
            devices=(f"{bmc.host}, {self._chassis}",),
            update_period=PERIOD,  # the schemas do not say how often sensors are read
            averaging=None,
            averaging_reason="Redfish does not say over which time a BMC averages",
            has_power=True,
            has_counter=False,
            counter_ranges=(),
            simulated=False,
        )

    def read(self) -> Any:
        """Return the power now. Raises MeterError."""
        watts = _watts(self._get(self._place))
        if watts is None:
            raise self._error(f"{self._place} has no reading of power")
        return self._reading(watts=[watts], joules=())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _checked(self, ca: Path | None) -> ssl.SSLContext:
        """Return what checks the certificate of the BMC, and that it is of this host."""
        try:
            return ssl.create_default_context(cafile=ca)
        except OSError as error:
            raise self._error(f"{ca} has no certificates: {error}") from None

    def _readings(self) -> Iterator[tuple[str, str]]:
        """Yield the chassis that have a reading of power, each with the path of the document that has it."""
        for path in self._chassis_paths():
            chassis = self._get(path)
            for part in ("EnvironmentMetrics", "Power"):
                place = _link(chassis.get(part))
                if place and _watts(self._get(place)) is not None:
                    yield path.rstrip("/").rpartition("/")[2], place
                    break

    def _chassis_paths(self) -> list[str]:
        if self.bmc.chassis:
            return [f"{_ROOT}Chassis/{self.bmc.chassis}"]
        members = self._get(f"{_ROOT}Chassis").get("Members")
        links = map(_link, members if isinstance(members, list) else ())
        return [link for link in links if link]

    def _get(self, path: str) -> dict[str, Any]:
        """Return a document. Raises MeterError; redirections are not followed, since others would get the password."""
        login = base64.b64encode(f"{self.bmc.user}:{self.bmc.password}".encode()).decode()
        try:
            self._connection.request(
                "GET", path, headers={"Authorization": f"Basic {login}", "Accept": "application/json"}
            )
            with self._connection.getresponse() as answer:
                content = answer.read(_LARGEST + 1)
                status = answer.status
            document = json.loads(content) if status == 200 and len(content) <= _LARGEST else None
        except ssl.SSLCertVerificationError as error:
            self._connection.close()
            cause = f"the certificate of {self.bmc.host} is not trusted: {error.verify_message}; name its issuer: ca"
            raise self._error(cause) from None
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            self._connection.close()
            raise self._error(f"{self.bmc.host}{path}: {error or type(error).__name__}") from None
        if not isinstance(document, dict):
            self._connection.close()
            refused = f", which refuses {self.bmc.user}" if status in (401, 403) else ""
            raise self._error(f"{self.bmc.host}{path} answers with {status}{refused}, and no document")
        return document


def _link(value: Any) -> str:
    """Return the path that a link leads to; empty if it is none within Redfish."""
    path = value.get("@odata.id") if isinstance(value, dict) else None
    return path if isinstance(path, str) and path.startswith(_ROOT) and path.isascii() and path.isprintable() else ""


def _watts(document: dict[str, Any]) -> float | None:
    """Return the power in W that EnvironmentMetrics or Power has; None without one."""
    control, watts = document.get("PowerControl"), document.get("PowerWatts")
    first = control[0] if isinstance(control, list) and control else None
    places = ((watts, "Reading"), (first, "PowerConsumedWatts"))
    numbers = (place.get(name) for place, name in places if isinstance(place, dict))
    usable = (value for value in numbers if isinstance(value, int | float) and not isinstance(value, bool))
    return next((float(value) for value in usable if 0 < value < _MOST_WATTS), None)
