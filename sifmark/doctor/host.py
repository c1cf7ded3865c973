"""Whether this host can build and run images: one check per thing looked at, with its remedy."""

import os
import pwd
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from sifmark.core.checks import Check, Status
from sifmark.core.environment import platform_name, temporary_folder
from sifmark.core.errors import SifmarkError
from sifmark.core.files import existing_part, free_space, human_size
from sifmark.core.process import CommandError, run
from sifmark.core.settings import Settings
from sifmark.doctor.cards import check_numa_nodes
from sifmark.doctor.launch import check_launch
from sifmark.doctor.load import check_load
from sifmark.engines import APPTAINER, DOCKER, Forecast, open_engine
from sifmark.engines.apptainer.engine import MINIMUM, user_flags
from sifmark.engines.apptainer.squashfs import squashfs_tool
from sifmark.engines.docker.client import DockerDaemon, DockerError
from sifmark.layers import installers
from sifmark.oci.images import ping
from sifmark.publish.stores import open_store
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import load_recipe, recipe_names

_SPACE_NEEDED = 6 * 1024**3  # bytes, where no base says more: a torch image, its stages, and a copy being written
_SQUASHFS_TOOLS = (4, 4)  # the first with zstd everywhere and with SOURCE_DATE_EPOCH
# Ubuntu closes user namespaces to programs without an AppArmor profile; Apptainer's profile opens them to it alone.
_APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"
_PROFILE = Path("/etc/apparmor.d/apptainer")
# Kernel settings that keep ordinary users from opening user namespaces, and the values that do so.
_FORBIDDING = {
    "user.max_user_namespaces": "0",
    "kernel.unprivileged_userns_clone": "0",
    _APPARMOR: "1",
}


def check_host(settings: Settings) -> Iterator[Check]:
    """Yield all checks of this host. A warning is about what works, but slower or not for everyone."""
    for check in CHECKS:
        yield from check(settings)


def check_apptainer(settings: Settings) -> Iterator[Check]:
    """Check the engine's version, and the tools that pack file systems."""
    version, minimum = open_engine(settings, APPTAINER).version(), ".".join(map(str, MINIMUM))
    if version is None:
        yield Check("Apptainer", Status.FAILED, "not installed", "ci/setup/apptainer installs it")
    elif tuple(int(part) for part in version.split(".")[:2]) < MINIMUM:
        yield Check("Apptainer", Status.FAILED, version, f"install {minimum} or newer: ci/setup/apptainer")
    else:
        flags = " ".join(user_flags())
        yield Check("Apptainer", Status.PASSED, version + (f", run with {flags} for this root" if flags else ""))
    for program in ("mksquashfs", "unsquashfs"):
        yield _check_squashfs_tool(program)


def check_docker(settings: Settings) -> Iterator[Check]:
    """Check the other engine, which only some need, and the program that signs its images."""
    chosen = settings.engine == DOCKER
    missing, why = (Status.FAILED, "") if chosen else (Status.WARNING, "needed only for --engine docker: ")
    try:
        version = DockerDaemon(settings.time_limit).version()
    except DockerError as error:
        yield Check("Docker", missing, error.cause, f"{why}{error.remedy}")
        return
    if shutil.which("docker") is None:
        yield Check("Docker", missing, f"{version}, and no docker command", f"{why}ci/setup/docker installs it")
    else:
        yield Check("Docker", Status.PASSED, version)
    if (path := shutil.which("cosign")) is None:
        remedy = "needed only for signatures of Docker images: ci/setup/cosign"
        yield Check("cosign", Status.WARNING, "not installed", remedy)
    else:
        yield Check("cosign", Status.PASSED, path)


def check_build_packages(_settings: Settings) -> Iterator[Check]:
    """Check the Python packages of the extra `build`."""
    try:
        installers.require_packages("a build")
    except SifmarkError as error:
        yield Check("build packages", Status.WARNING, error.cause, f"needed only to build images: {error.remedy}")
    else:
        yield Check("build packages", Status.PASSED, ", ".join(installers.PACKAGES.values()))


def check_user_namespaces(_settings: Settings) -> Iterator[Check]:
    """Check whether a user without privileges can open a user namespace."""
    name = "user namespaces"
    if setting := _forbidding_setting():
        if setting == _APPARMOR and _PROFILE.exists():
            yield Check(name, Status.PASSED, f"open to Apptainer, by {_PROFILE}")
            return
        profile = "; or give Apptainer a profile: ci/setup/apptainer" if setting == _APPARMOR else ""
        remedy = f"let the administrator change it: sysctl {setting}{profile}"
        yield Check(name, Status.FAILED, f"{setting} is {_FORBIDDING[setting]}: closed to ordinary users", remedy)
        return
    if shutil.which("unshare") is None:
        yield Check(name, Status.WARNING, "not checked: unshare is not in PATH", "install util-linux, which has it")
        return
    try:
        run(["unshare", "--user", "--map-root-user", "true"])
    except CommandError as error:
        detail = error.cause.splitlines()[-1].strip()
        yield Check(name, Status.FAILED, detail, "ask the administrator to allow them")
        return
    who = "for root; no kernel setting closes them to others" if os.geteuid() == 0 else "for this user"
    yield Check(name, Status.PASSED, f"available {who}")


def _forbidding_setting() -> str | None:
    """Return the kernel setting that closes user namespaces, if there is one."""
    for name, value in _FORBIDDING.items():
        path = Path("/proc/sys") / name.replace(".", "/")
        if path.is_file() and path.read_text().strip() == value:
            return name
    return None


def check_fuse(_settings: Settings) -> Iterator[Check]:
    """Check whether images can be mounted without privileges; else they are unpacked at each start."""
    device = Path("/dev/fuse")
    if not device.exists():
        detail = "no /dev/fuse: images are unpacked at each start"
        yield Check("fuse", Status.WARNING, detail, "load the fuse module")
    elif device.stat().st_mode & 0o006 != 0o006:
        yield Check("fuse", Status.WARNING, "/dev/fuse is closed to ordinary users", "chmod 666 /dev/fuse")
    else:
        yield Check("fuse", Status.PASSED, "/dev/fuse is open to every user")
    yield _check_program("squashfuse", Status.WARNING)


def check_subordinate_ids(_settings: Settings) -> Iterator[Check]:
    """Check what `apptainer build --fakeroot` needs. Our own builds do without."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a user whom this host does not know
        user = str(os.geteuid())
    for name in ("/etc/subuid", "/etc/subgid"):
        path = Path(name)
        lines = path.read_text().splitlines() if path.is_file() else []
        if any(line.split(":")[0] in (user, str(os.geteuid())) for line in lines):
            yield Check(name, Status.PASSED, f"has a range for {user}")
        else:
            remedy = f"only for definitions of your own with %post: give {user} a range there that nobody else has"
            yield Check(name, Status.WARNING, f"has no range for {user}", remedy)


def check_folders(settings: Settings) -> Iterator[Check]:
    """Check space, and the right to execute, where builds and engines write."""
    forecasts = dict(_forecasts(settings))
    yield from _check_folder("cache", settings.cache, {name: each.cached for name, each in forecasts.items()})
    yield from _check_folder("dist", settings.dist, {name: each.stored for name, each in forecasts.items()})
    temporary = {name: each.temporary for name, each in forecasts.items()}
    yield from _check_folder("temporary", temporary_folder(), temporary)


def _forecasts(settings: Settings) -> Iterator[tuple[str, Forecast]]:
    """Yield what a build of each recipe would take, where that is known."""
    engine = open_engine(settings)
    for recipe in recipe_names():
        with suppress(SifmarkError):
            plan = make_plan(recipe, settings)
            plan.require_resolved()
            yield recipe, engine.forecast(plan)


def _check_folder(role: str, folder: Path, needs: Mapping[str, int]) -> Iterator[Check]:
    """Check a folder; `needs` are the bytes that the build of each recipe would add to it."""
    name, existing = f"{role} folder", existing_part(folder)
    if not os.access(existing, os.W_OK):
        remedy = "name another in sifmark.toml, or by APPTAINER_TMPDIR or TMPDIR"
        yield Check(name, Status.FAILED, f"{folder} is not writable", remedy)
        return
    if os.statvfs(existing).f_flag & os.ST_NOEXEC:
        yield Check(name, Status.WARNING, f"{folder} is mounted noexec", "name another folder for builds")
    free = free_space(existing)
    needed, recipe = max(((size, recipe) for recipe, size in needs.items()), default=(0, ""))
    what = f"a build of {recipe}" if needed > _SPACE_NEEDED else "a build"
    needed = max(needed, _SPACE_NEEDED)
    detail = f"{folder} has {human_size(free)} left"
    if free < needed:
        remedy = f"free some, or name another folder: {what} needs about {human_size(needed)}"
        yield Check(name, Status.WARNING, detail, remedy)
    else:
        yield Check(name, Status.PASSED, f"{detail}, {what} needs about {human_size(needed)}")


def check_registries(settings: Settings) -> Iterator[Check]:
    """Check whether the registries of the bases in force answer, and the one that images are pushed to."""
    recipes: dict[tuple[str, bool], list[str]] = defaultdict(list)  # by registry, and whether it has stand-ins
    problems: dict[str, list[tuple[str, SifmarkError]]] = defaultdict(list)  # by code
    for recipe in recipe_names():
        try:
            plan = make_plan(recipe, settings)
            plan.require_resolved()
        except SifmarkError as error:  # other recipes can be built all the same
            problems[error.code].append((recipe, error))
        else:
            recipes[plan.base.address.partition("/")[0], plan.base.stand_in].append(recipe)
    for same in problems.values():
        first = same[0][1]
        more = f", and {len(same) - 1} more like it" if len(same) > 1 else ""
        without_base = ", ".join(recipe for recipe, _ in same)
        yield Check(f"base of {without_base}", Status.WARNING, f"{first.cause}{more}", first.remedy)
    for (host, stand_in), names in recipes.items():
        remedy = "ci/setup/registry start" if stand_in else "set a mirror in sifmark.toml, or use --bases stand-in"
        name = f"registry of {', '.join(names)}"
        yield _check_registry(name, host, f"needed only to download a base again: {remedy}")
    if settings.registry and (host := open_store("", "", settings).host):
        yield _check_registry("registry of images", host, "needed to push and pull: is its name right, and is it up?")


def check_devices(_settings: Settings) -> Iterator[Check]:
    """List the processor, and accelerators by their device files and by NUMA node."""
    yield Check("devices", Status.PASSED, f"CPU ({platform_name()}, {os.cpu_count()} cores)")
    for recipe in map(load_recipe, recipe_names()):
        if recipe.access and (devices := recipe.access.existing_files()):
            yield Check("devices", Status.PASSED, f"of recipe {recipe.name}: {', '.join(devices)}")
    yield from check_numa_nodes()


CHECKS: tuple[Callable[[Settings], Iterator[Check]], ...] = (
    check_apptainer,
    check_docker,
    check_build_packages,
    check_user_namespaces,
    check_fuse,
    check_subordinate_ids,
    check_folders,
    check_registries,
    check_devices,
    check_load,
    check_launch,
)


def _check_registry(name: str, host: str, remedy: str) -> Check:
    fault = ping(host)
    if fault is None:
        return Check(name, Status.PASSED, f"{host} answers")
    return Check(name, Status.WARNING, fault, remedy)


def _check_squashfs_tool(name: str) -> Check:
    path = shutil.which(squashfs_tool(name))
    if path is None:
        return Check(name, Status.FAILED, "not installed", "ci/setup/apptainer installs it")
    match = re.search(r"version (\d+)\.(\d+)", run([path, "-version"], check=False).output)
    if match and tuple(map(int, match.groups())) < _SQUASHFS_TOOLS:
        remedy = "install squashfs-tools 4.4 or newer: older ones have no zstd or no SOURCE_DATE_EPOCH"
        return Check(name, Status.FAILED, f"{path} is {match[0]}", remedy)
    return Check(name, Status.PASSED, f"{path}, {match[0]}" if match else path)


def _check_program(name: str, missing: Status = Status.FAILED) -> Check:
    path = shutil.which(name)
    if path is None:
        return Check(name, missing, "not installed", "ci/setup/apptainer installs it")
    return Check(name, Status.PASSED, path)
