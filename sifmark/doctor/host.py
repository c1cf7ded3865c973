"""What of this host works for building and running images: each finding with its remedy."""

import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from sifmark.core.console import output
from sifmark.core.environment import platform_name
from sifmark.core.errors import SifmarkError
from sifmark.core.files import human_size
from sifmark.core.process import CommandError, run
from sifmark.core.settings import settings
from sifmark.doctor.finding import BAD, GOOD, POOR, Finding
from sifmark.doctor.image import check_image as examine_image
from sifmark.engines.apptainer.engine import MINIMUM, Apptainer, user_flags
from sifmark.engines.docker.client import DockerError, docker_client
from sifmark.oci.images import ping
from sifmark.publish.stores import open_store
from sifmark.recipes.plan import BaseImage, make_plan
from sifmark.recipes.recipe import load_recipe, recipe_names

_SPACE_NEEDED = 6 * 1024**3  # bytes: a torch image, its stages in the cache, and a copy being written
# Ubuntu closes user namespaces to what has no profile of AppArmor's: Apptainer's opens them to it alone.
_APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"
_PROFILE = Path("/etc/apparmor.d/apptainer")
# Kernel settings that keep ordinary users from opening user namespaces, and the values that do so.
_FORBIDDING = {
    "user.max_user_namespaces": "0",
    "kernel.unprivileged_userns_clone": "0",
    _APPARMOR: "1",
}


def run_doctor(image: str, as_json: bool) -> None:
    """Print every finding of this host, or what an image sees of it. Raises SifmarkError when something is bad."""
    findings = list(examine_image(image)) if image else [finding for examine in EXAMINATIONS for finding in examine()]
    if as_json:
        output(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            output(f"{finding.state:<5} {finding.subject}: {finding.seen}")
            if finding.remedy:
                output(f"      remedy: {finding.remedy}")
    bad = [finding.subject for finding in findings if finding.state == BAD]
    if bad:
        raise SifmarkError(f"not ready: {', '.join(bad)}", "the lines above say what to do")


def apptainer() -> Iterator[Finding]:
    """The engine, and the tools that pack file systems."""
    version = Apptainer().version()
    if version is None:
        yield Finding("Apptainer", BAD, "not installed", "ci/setup/apptainer installs it")
    elif tuple(int(part) for part in version.split(".")[:2]) < MINIMUM:
        yield Finding("Apptainer", BAD, version, f"install {'.'.join(map(str, MINIMUM))} or newer: ci/setup/apptainer")
    else:
        flags = " ".join(user_flags())
        yield Finding("Apptainer", GOOD, version + (f", run with {flags} for this root" if flags else ""))
    for tool in ("mksquashfs", "unsquashfs"):
        yield _tool(tool)


def docker() -> Iterator[Finding]:
    """The other engine, for who wants it."""
    without, why = (BAD, "") if settings().engine == "docker" else (POOR, "needed only for --engine docker: ")
    try:
        version = docker_client().version()["Version"]
    except DockerError as error:
        yield Finding("Docker", without, error.cause, f"{why}{error.remedy}")
        return
    if shutil.which("docker") is None:
        yield Finding("Docker", without, f"{version}, and no docker command", f"{why}ci/setup/docker installs it")
    else:
        yield Finding("Docker", GOOD, str(version))
    if (path := shutil.which("cosign")) is None:
        yield Finding("cosign", POOR, "not installed", "needed only for signatures of Docker images: ci/setup/cosign")
    else:
        yield Finding("cosign", GOOD, path)


def user_namespaces() -> Iterator[Finding]:
    """Whether a user without privileges can open a user namespace."""
    for name, value in _FORBIDDING.items():
        path = Path("/proc/sys") / name.replace(".", "/")
        if path.is_file() and path.read_text().strip() == value:
            if name == _APPARMOR and _PROFILE.exists():
                yield Finding("user namespaces", GOOD, f"open to Apptainer, by {_PROFILE}")
                return
            profile = "; or give Apptainer a profile: ci/setup/apptainer" if name == _APPARMOR else ""
            remedy = f"let the administrator change it: sysctl {name}{profile}"
            yield Finding("user namespaces", BAD, f"{name} is {value}: closed to ordinary users", remedy)
            return
    try:
        run(["unshare", "--user", "--map-root-user", "true"])
    except CommandError as error:
        yield Finding(
            "user namespaces", BAD, error.cause.splitlines()[-1].strip(), "ask the administrator to allow them"
        )
        return
    who = "for root; no kernel setting closes them to others" if os.geteuid() == 0 else "for this user"
    yield Finding("user namespaces", GOOD, f"available {who}")


def fuse() -> Iterator[Finding]:
    """Whether images can be mounted without privileges; else they are unpacked at each start."""
    device = Path("/dev/fuse")
    if not device.exists():
        yield Finding("fuse", POOR, "no /dev/fuse: images are unpacked at each start", "load the fuse module")
    elif device.stat().st_mode & 0o006 != 0o006:
        yield Finding("fuse", POOR, "/dev/fuse is closed to ordinary users", "chmod 666 /dev/fuse")
    else:
        yield Finding("fuse", GOOD, "/dev/fuse is open to every user")
    yield _tool("squashfuse", POOR)


def subordinate_ids() -> Iterator[Finding]:
    """What `apptainer build --fakeroot` needs. Our own builds do without."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a user whom this host does not know
        user = str(os.geteuid())
    for name in ("/etc/subuid", "/etc/subgid"):
        path = Path(name)
        lines = path.read_text().splitlines() if path.is_file() else []
        if any(line.split(":")[0] in (user, str(os.geteuid())) for line in lines):
            yield Finding(name, GOOD, f"has a range for {user}")
        else:
            remedy = f"only for definitions of your own with %post: give {user} a range there that nobody else has"
            yield Finding(name, POOR, f"has no range for {user}", remedy)


def folders() -> Iterator[Finding]:
    """Space, and the right to execute, where builds and engines write."""
    roles = {"cache": settings().cache, "dist": settings().dist, "temporary": Path(tempfile.gettempdir())}
    for role, folder in roles.items():
        there = next(path for path in [folder, *folder.parents] if path.exists())
        free = shutil.disk_usage(there).free
        if not os.access(there, os.W_OK):
            yield Finding(f"{role} folder", BAD, f"{folder} is not writable", "name another in sifmark.toml or TMPDIR")
            continue
        if os.statvfs(there).f_flag & os.ST_NOEXEC:
            yield Finding(f"{role} folder", POOR, f"{folder} is mounted noexec", "name another folder for builds")
        if free < _SPACE_NEEDED:
            remedy = f"free some, or name another folder: a build needs {human_size(_SPACE_NEEDED)}"
            yield Finding(f"{role} folder", POOR, f"{folder} has {human_size(free)} left", remedy)
        else:
            yield Finding(f"{role} folder", GOOD, f"{folder} has {human_size(free)} left")


def registries() -> Iterator[Finding]:
    """Whether the registries of the bases in force answer, and the one that images are pushed to."""
    for recipe in recipe_names():
        try:
            plan = make_plan(recipe)
            plan.require_resolved()
        except SifmarkError as error:  # other recipes can be built all the same
            yield Finding(f"base of {recipe}", POOR, error.cause, error.remedy)
            continue
        yield _registry(recipe, plan.base)
    if settings().registry and (host := open_store("", "").host):
        yield _answers("registry of images", host, "needed to push and pull: is its name right, and is it up?")


def devices() -> Iterator[Finding]:
    """The processor, and accelerators by their device files."""
    yield Finding("devices", GOOD, f"CPU ({platform_name()}, {os.cpu_count()} cores)")
    for recipe in map(load_recipe, recipe_names()):
        if recipe.access and (here := recipe.access.here()):
            yield Finding("devices", GOOD, f"of recipe {recipe.name}: {', '.join(here)}")


EXAMINATIONS: tuple[Callable[[], Iterator[Finding]], ...] = (
    apptainer,
    docker,
    user_namespaces,
    fuse,
    subordinate_ids,
    folders,
    registries,
    devices,
)


def _registry(recipe: str, base: BaseImage) -> Finding:
    host = base.address.partition("/")[0]
    remedy = "ci/setup/registry start" if base.stand_in else "set a mirror in sifmark.toml, or use --bases stand-in"
    return _answers(f"registry of {recipe}", host, f"needed only to fetch a base anew: {remedy}")


def _answers(subject: str, host: str, remedy: str) -> Finding:
    why = ping(host)
    return Finding(subject, GOOD, f"{host} answers") if why is None else Finding(subject, POOR, why, remedy)


def _tool(name: str, without: str = BAD) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(name, without, "not installed", "ci/setup/apptainer installs it")
    return Finding(name, GOOD, path)
