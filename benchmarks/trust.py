"""The cost of trust in a large signed image, against hashing it once. README.md explains the numbers."""

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from pairs import Times, measure, parser, report, require_folder, spend

from sifmark.attestations import sbom
from sifmark.attestations.packages import Package
from sifmark.core.errors import SifmarkError
from sifmark.core.paths import CHECKOUT
from sifmark.core.process import run
from sifmark.core.settings import load_settings
from sifmark.core.terminal import status
from sifmark.engines.apptainer.append import append_in_place
from sifmark.engines.apptainer.build import assemble_sif
from sifmark.engines.apptainer.sif import Extent, read_sif
from sifmark.recipes.plan import make_plan

RECIPE = "cpu"
SIZE = 1 << 30  # bytes of the image, at least
INV = (Path(sys.executable).with_name("inv"), "--search-root", CHECKOUT)
_HASH = "import hashlib, sys; hashlib.file_digest(open(sys.argv[1], 'rb'), 'sha256')"


def make_image(folder: Path) -> tuple[Path, Path]:
    """Create a signed image of a recipe, enlarged by an incompressible file; return it and its key."""
    run([*INV, "build", RECIPE], environment={"SIFMARK_DIST": str(folder / "dist")})
    small, large = folder / "dist" / f"{RECIPE}.sif", folder / f"{RECIPE}.sif"
    sif = read_sif(small)
    squashfs = folder / "root.squashfs"
    sif.copy(sif.system, squashfs)
    filler = folder / "filler"
    filler.mkdir()
    with Path("/dev/urandom").open("rb") as source, (filler / "more").open("wb") as sink:
        for _ in range(0, SIZE - sif.system.size, 1 << 20):
            sink.write(source.read(1 << 20))
    append_in_place(filler, squashfs, None, time_limit=600)
    plan = make_plan(RECIPE, load_settings())
    sboms = sbom.draft_documents(plan, [Package("pypi", "none", "0")])
    system = Extent(squashfs, 0, squashfs.stat().st_size)
    assemble_sif(plan, system, large, sif.attributes(), sboms, builder="https://builder.example/")
    shutil.rmtree(filler)
    squashfs.unlink()
    key = folder / "key.pem"
    run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key])
    run(["openssl", "pkey", "-in", key, "-pubout", "-out", key.with_suffix(".pub")])
    run(["apptainer", "sign", "--key", key, large])
    return large, key.with_suffix(".pub")


def hashed(image: Path) -> Times:
    """Time the SHA-256 of the file in Python."""
    return {"wall": spend([sys.executable, "-c", _HASH, image]).seconds}


def verified(image: Path, key: Path) -> Times:
    """Time the check of signature, image ID, pin and provenance."""
    return {"wall": spend([*INV, "verify", image, "--stages", "trust", "--key", key]).seconds}


def main() -> None:
    """Measure, print and save. Raises SifmarkError."""
    options = parser(__doc__, pairs=7).parse_args()
    require_folder(options.json)
    target = options.json and options.json.absolute()
    with tempfile.TemporaryDirectory(prefix="sifmark-benchmark-") as name:
        status(f"making a signed image of {SIZE >> 20} MiB")
        image, key = make_image(Path(name))
        sides = {"hash": partial(hashed, image), "trust": partial(verified, image, key)}
        measure(1, sides)  # so that the file is in memory for both
        rounds = measure(options.pairs, sides)
        about = {"bases": load_settings().bases, "bytes": image.stat().st_size}
    report("trust", rounds, "hash", about, target)


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
