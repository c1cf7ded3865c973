"""Network interfaces of this host, and the one that ranks on other nodes are to reach. Linux."""

import fcntl
import ipaddress
import socket
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from sifmark.core.checks import Check, Status

IPV6 = Path("/proc/net/if_inet6")  # address, index, prefix length, scope, flags and name of each
INFINIBAND = Path("/sys/class/infiniband")
GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
SIOCGIFADDR = 0x8915  # linux/sockios.h
Interfaces = Mapping[str, list[str]]


def interfaces() -> Interfaces:
    """Return the addresses of each network interface that has any: IPv4, then IPv6."""
    addresses: dict[str, list[str]] = defaultdict(list)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                addresses[name].append(socket.inet_ntoa(answer[20:24]))
    for line in IPV6.read_text().splitlines() if IPV6.exists() else []:
        digits, *_, name = line.split()
        addresses[name].append(str(ipaddress.IPv6Address(int(digits, 16))))
    return dict(addresses)


def own_addresses() -> list[str]:
    """Return the addresses that this host's name resolves to; none if it does not resolve."""
    with suppress(OSError):
        return list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)))
    return []


def check_network(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check where ranks listen: at the interface that a variable names, else at the address of the host's name."""
    existing = interfaces()
    listed = "; ".join(f"{name} {' '.join(addresses)}" for name, addresses in existing.items())
    yield Check("network interfaces", Status.PASSED, listed or "none")
    if INFINIBAND.is_dir() and (devices := sorted(path.name for path in INFINIBAND.iterdir())):
        yield Check("RDMA devices", Status.PASSED, ", ".join(devices))
    for variable in (GLOO, NCCL):
        if chosen := environment.get(variable):
            yield _check_variable(variable, chosen, existing)
    if not environment.get(GLOO):
        yield _check_name(existing)


def _check_variable(variable: str, chosen: str, existing: Interfaces) -> Check:
    if matching := [name for name in existing if _matches(name, chosen, exact=variable == GLOO)]:
        return Check(variable, Status.PASSED, f"{chosen}: {', '.join(matching)}")
    remedy = f"name one of {', '.join(existing)}, or unset {variable}"
    return Check(variable, Status.FAILED, f"{chosen} is no network interface of this host", remedy)


def _matches(name: str, chosen: str, exact: bool) -> bool:
    """Return whether a variable chooses an interface. NCCL takes prefixes, `=` before names, `^` before exceptions."""
    negated, words = chosen.startswith("^"), chosen.lstrip("^=").split(",")
    if exact or chosen.lstrip("^").startswith("="):
        return (name in words) is not negated
    return name.startswith(tuple(words)) is not negated


def _check_name(existing: Interfaces) -> Check:
    host, addresses = socket.gethostname(), own_addresses()
    near = {address: name for name, own in existing.items() for address in own}
    outward = [address for address in addresses if address in near and not _is_loopback(address)]
    if outward and outward == [address for address in addresses if not _is_loopback(address)]:
        detail = ", ".join(f"{address} of {near[address]}" for address in outward)
        return Check("host name", Status.PASSED, f"{host} is {detail}, where gloo listens")
    if not addresses:
        detail = f"{host} does not resolve, so gloo listens at the loopback, which no other node reaches"
    elif strange := [address for address in addresses if address not in near and not _is_loopback(address)]:
        detail = f"{host} is {', '.join(strange)}, which no network interface of this host has"
    else:
        detail = f"{host} is {', '.join(addresses)}: gloo listens at the loopback, which no other node reaches"
    name = _outward(existing)
    remedy = f"needed only for ranks on several nodes: export {GLOO}={name} {NCCL}={name}"
    return Check("host name", Status.WARNING, detail, remedy)


def _outward(existing: Interfaces) -> str:
    """Return the first interface that other nodes may reach."""
    return next((name for name, addresses in existing.items() if _reachable(addresses)), "INTERFACE")


def _reachable(addresses: Iterable[str]) -> bool:
    return any(not _is_loopback(each) and not ipaddress.ip_address(each).is_link_local for each in addresses)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
