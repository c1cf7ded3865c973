"""A stand-in base as an OCI image layout: a Debian root, below it a Python, a framework and the real base's layout.

`describe RECIPE` prints its parts, `missing RECIPE` the part that this machine lacks, and fails if it lacks none;
`layout RECIPE ROOT FOLDER` writes it. Its description is the file with the recipe's name in stand-ins/, or with that of
another recipe on the same base. Its keys:

packages, suite                of Debian, in the root; its release, bookworm by default
python, interpreter            its minor version; `interpreter = "host"` puts this machine's own into /usr/local
framework                      whose version results will state: a wheel of `requirements`, or a package of Debian
requirements, site             a file of pinned wheels, and the folder that they go to
wheels                         others that go there, such as older ones than ours
stale_library                  `cached`, a library that the linker's cache lists, and `real`, the only place where it is
env, user, workdir, entrypoint the image's configuration
files, links                   by path; a file that begins with #! is executable
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sifmark.core.files import compact_json, sha256_file
from sifmark.layers.installers import pip_target_options
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import PLATFORMS, Descriptor, descriptor_of, write_manifest
from sifmark.recipes.recipe import Target, load_recipe, recipe_names

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
EPOCH, CREATED = 1_704_067_200, "2024-01-01T00:00:00Z"  # any fixed date will do
MEDIA = "application/vnd.oci.image."
CHUNK = 1 << 20  # bytes
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Each image must bring these itself; some test requirements include them.
OURS = {"jsonschema", "jsonschema-specifications", "attrs", "referencing", "rpds-py", "pkgutil-resolve-name", "zipp"}
UNUSED = ("__pycache__", "test", "tests", "idlelib", "ensurepip", "site-packages", "config-*")  # of an interpreter

Description = dict[str, Any]


def describe(recipe: str) -> Description:
    """Return the description of the stand-in for a recipe's base, with the base's name. Exits if there is none."""
    reference = load_recipe(recipe).base.reference
    alike = [name for name in recipe_names() if load_recipe(name).base.reference == reference]
    for path in (HERE / "stand-ins" / f"{name}.toml" for name in alike):
        if path.is_file():
            return {"reference": reference, **tomllib.loads(path.read_text())}
    raise SystemExit(f"no stand-in is described for {reference}: write {HERE}/stand-ins/{recipe}.toml")


def write_layout(description: Description, root: Path, folder: Path) -> dict[str, str]:
    """Write the image; return its digest, and the versions of Python and framework in it."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        tars = [root]
        for add in (add_interpreter, add_wheels, add_files, add_stale_library):
            tar = work / f"{add.__name__}.tar"
            with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as archive:
                add(description, archive)
                tars += [tar] if archive.getmembers() else []
        digest = write_image(tars, folder, configuration(description))
    version = framework_version(description, root)
    return {"digest": digest, "python": description["python"], **({"framework_version": version} if version else {})}


def write_image(tars: list[Path], folder: Path, config: Description) -> str:
    """Write a new layout with an image that has a layer for each tar; return the digest of its manifest."""
    shutil.rmtree(folder, ignore_errors=True)
    layout = Layout(folder)
    layers = [add_layer(layout, tar) for tar in tars]
    (_, architecture), *_ = [names for names, machine in PLATFORMS.items() if machine == platform.machine()]
    image = {
        "architecture": architecture,
        "os": "linux",
        "created": CREATED,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [sha256_file(tar) for tar in tars]},
        "history": [{"created": CREATED, "created_by": "sifmark ci/setup/stand-in"} for _ in layers],
    }
    content = compact_json(image)
    layout.add(content)
    manifest = write_manifest(descriptor_of(f"{MEDIA}config.v1+json", content), layers)
    layout.add(manifest.content)
    layout.write_index([descriptor_of(manifest.media_type, manifest.content)])
    return manifest.digest


def add_layer(layout: Layout, tar: Path) -> Descriptor:
    """Compress a tar into a layout and return its descriptor."""
    with (
        tar.open("rb") as source,
        layout.writer() as blob,
        # No name or time in the header: they would change the digest.
        gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=blob, mtime=0) as stream,
    ):
        shutil.copyfileobj(source, stream, CHUNK)
    return Descriptor(f"{MEDIA}layer.v1.tar+gzip", blob.digest, blob.size)


def configuration(description: Description) -> dict[str, Any]:
    """Return the image's configuration, in the names of the OCI specification."""
    env = {"PATH": PATH, "LANG": "C.UTF-8", **description.get("env", {})}
    names = {"WorkingDir": "workdir", "User": "user", "Entrypoint": "entrypoint"}
    return {
        "Env": [f"{key}={value}" for key, value in env.items()],
        "Cmd": ["python3"],
        "Labels": {"org.sifmark.stand-in": "true", "org.sifmark.stand-in.for": description["reference"]},
        **{key: description[name] for key, name in names.items() if name in description},
    }


def add_interpreter(description: Description, archive: tarfile.TarFile) -> None:
    """Add this machine's CPython with its standard library, in /usr/local."""
    if description.get("interpreter") != "host":
        return
    version = description["python"]
    home = Path(str(host_prefix(version)))
    add_tree(archive, home / "lib" / f"python{version}", f"usr/local/lib/python{version}", UNUSED)
    for library in home.glob(f"lib/libpython{version}.so*"):  # where the loader looks by default
        add_tree(archive, library, f"usr/lib/{platform.machine()}-linux-gnu/{library.name}")
    add_tree(archive, (home / "bin" / f"python{version}").resolve(), f"usr/local/bin/python{version}")
    add_link(archive, "usr/local/bin/python3", f"python{version}")
    add_link(archive, "usr/local/bin/python", "python3")


def add_wheels(description: Description, archive: tarfile.TarFile) -> None:
    """Add the wheels, unpacked as pip does it."""
    if "site" not in description:
        return
    others = description.get("wheels", [])
    left_out = {*OURS, *(line.partition("==")[0] for line in others)}
    wanted = [line for line in requirements(description) if canonical(re.split("[=<> ]", line)[0]) not in left_out]
    wanted += others
    with tempfile.TemporaryDirectory() as name:
        install(wanted, description["python"], name)
        shutil.rmtree(Path(name) / "bin", ignore_errors=True)  # they name this machine's interpreter
        add_tree(archive, Path(name), description["site"].strip("/"), ("__pycache__",))


def install(wanted: list[str], python: str, folder: str) -> None:
    """Unpack wheels from pip's configured indexes; if that fails, with PyTorch's own index added. Exits on failure."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps"]
    pip += ["--no-compile", "--target", folder, *pip_target_options(Target(python, platform.machine())), *wanted]
    index = load_recipe("cpu").index
    ways = ([], ["--extra-index-url", index]) if index else ([],)
    if not any(subprocess.run([*pip, *way], stdout=sys.stderr).returncode == 0 for way in ways):
        raise SystemExit("pip could not unpack the wheels (its message is above)")


def add_files(description: Description, archive: tarfile.TarFile) -> None:
    """Add small files and links."""
    for path, text in description.get("files", {}).items():
        content = text.removeprefix("\n").encode()
        member = tarfile.TarInfo(path.strip("/"))
        member.size, member.mode = len(content), 0o755 if content.startswith(b"#!") else 0o644
        archive.addfile(normal(member), io.BytesIO(content))
    for path, target in description.get("links", {}).items():
        add_link(archive, path.strip("/"), target)


def add_stale_library(description: Description, archive: tarfile.TarFile) -> None:
    """Add a library with one function that fails, and a linker's cache that lists it where it is not."""
    if "stale_library" not in description:
        return
    cached, real = (Path(description["stale_library"][key].strip("/")) for key in ("cached", "real"))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for folder in ("etc", str(cached.parent)):
            (root / folder).mkdir(parents=True)
        source = root / "library.c"
        source.write_text("int cuInit(unsigned flags) { return 803 + flags; }\n")  # CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
        flags = ["-shared", "-fPIC", "-s", "-Wl,--build-id=none", f"-Wl,-soname,{cached.name}"]
        subprocess.run([shutil.which("gcc") or "gcc", *flags, str(source), "-o", str(root / cached)], check=True)
        (root / "etc" / "ld.so.conf").write_text(f"/{cached.parent}\n")
        subprocess.run(["/sbin/ldconfig", "-r", name], check=True)
        add_tree(archive, root / cached, str(real))
        add_tree(archive, root / "etc" / "ld.so.cache", "etc/ld.so.cache")
    add_link(archive, str(real.with_name(cached.name)), real.name)


def add_tree(archive: tarfile.TarFile, source: Path, place: str, without: tuple[str, ...] = ()) -> None:
    """Add a file or folder, in a fixed order and without traces of this machine."""
    members = [source, *sorted(source.rglob("*"))] if source.is_dir() else [source]
    for path in members:
        inner = path.relative_to(source)
        if not any(Path(part).match(pattern) for part in inner.parts for pattern in without):
            archive.add(path, str(Path(place) / inner), recursive=False, filter=normal)


def add_link(archive: tarfile.TarFile, path: str, target: str) -> None:
    """Add a symbolic link."""
    member = tarfile.TarInfo(path)
    member.type, member.linkname = tarfile.SYMTYPE, target
    archive.addfile(normal(member))


def normal(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member that is owned by root, has a fixed date and is readable for all."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = EPOCH
    member.mode |= 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def requirements(description: Description) -> Iterator[str]:
    """Yield the pinned wheels without hashes, which prove nothing for stand-ins."""
    if "requirements" not in description:
        return
    path = REPOSITORY / description["requirements"].format(platform=platform.machine())
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split(" --hash", 1)[0]


def framework_version(description: Description, root: Path) -> str | None:
    """Return the framework's own version, from the requirements or from what Debian installed; None if there is none.

    Debian's number will not do: its torch 1.13.1 calls itself 1.13.0a0.
    """
    name = description.get("framework")
    if name is None:
        return None
    if "requirements" in description:
        return next(line.split("==")[1] for line in requirements(description) if line.startswith(f"{name}=="))
    record = re.compile(rf"/dist-packages/{re.escape(name.removeprefix('python3-'))}-([^-+/]+)[^/]*\.(egg|dist)-info")
    with tarfile.open(root) as archive:
        match = next(filter(None, map(record.search, archive.getnames())), None)
    return match.group(1) if match else None


def missing(description: Description) -> str | None:
    """Return what this machine lacks for a stand-in; None if it has everything."""
    version = description["python"]
    if description.get("interpreter") == "host" and host_prefix(version) is None:
        return f"no CPython {version} on this machine, on PATH or of pyenv's"
    return None


def host_prefix(version: str) -> str | None:
    """Return the prefix of this machine's CPython of a minor version; None if there is none."""
    versions = Path.home() / ".pyenv" / "versions"
    for python in [f"python{version}", *sorted(map(str, versions.glob(f"{version}.*/bin/python3")))]:
        try:
            asked = subprocess.run([python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True)
        except OSError:
            continue
        if asked.returncode == 0:
            return asked.stdout.strip()
    return None


def canonical(name: str) -> str:
    """Return a package's name as in indexes (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    """Read the arguments and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    for verb in ("describe", "missing"):
        verbs.add_parser(verb).add_argument("recipe")
    layout = verbs.add_parser("layout")
    for name, kind in (("recipe", str), ("root", Path), ("folder", Path)):
        layout.add_argument(name, type=kind)
    given = parser.parse_args()
    description = describe(given.recipe)
    if given.verb == "missing":
        reason = missing(description)
        sys.stdout.write(reason or "")
        sys.exit(reason is None)
    answer = description if given.verb == "describe" else write_layout(description, given.root, given.folder)
    sys.stdout.write(f"{json.dumps(answer, sort_keys=True)}\n")


if __name__ == "__main__":
    main()
