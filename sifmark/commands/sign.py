"""The sign verb."""

import shutil
from pathlib import Path

from sifmark.build import ledger
from sifmark.build.image import lock_path, read_record, record_path
from sifmark.core.console import status, step
from sifmark.core.errors import REBUILD_REMEDY, UsageError
from sifmark.core.files import atomic_path, write_json
from sifmark.core.locks import exclusive_lock
from sifmark.core.process import run
from sifmark.core.settings import settings
from sifmark.engines import CheckFailed
from sifmark.engines.apptainer.engine import Apptainer, verified_image
from sifmark.engines.apptainer.sif import read_sif
from sifmark.engines.apptainer.signature import unsign
from sifmark.engines.docker.engine import NAME as DOCKER
from sifmark.publish import docker
from sifmark.recipes.names import find_recipe, image_file
from sifmark.trust.checks import require_unchanged
from sifmark.trust.image import image_under_test


def sign(name: str, key: str, pgp: str, registry: str = "", tag: str = "") -> None:
    """Sign a recipe's image with a private key in PEM form; a SIF also with one of Apptainer's PGP keyring, by number.

    A SIF carries its signature; that of a Docker image is beside it in the registry. Raises SifmarkError.
    """
    if bool(key) == bool(pgp):
        raise UsageError(
            "which key is to sign?", "name one: --key FILE.pem, or --pgp NUMBER of apptainer key list --secret"
        )
    if pgp and not pgp.isdigit():
        raise UsageError(f"--pgp {pgp!r} is no number", "apptainer key list --secret tells the numbers")
    if key and not Path(key).is_file():
        raise UsageError(f"there is no file {key}", "make a key: openssl genpkey -algorithm ed25519 -out FILE.pem")
    if settings().engine == DOCKER:
        if pgp:
            raise UsageError("images of Docker are signed by a key in PEM form", "name one: --key FILE.pem")
        docker.sign(name, Path(key), registry, tag)
    elif registry or tag:
        raise UsageError("a SIF is signed here, before it is pushed", "leave --registry and --tag to inv push")
    else:
        _sign_sif(name, key, pgp)


def _sign_sif(name: str, key: str, pgp: str) -> None:
    """The image keeps its identity. All its names are links to the signed file afterwards.

    It takes the place of other signatures, since Apptainer wants all of them to be by the key that it is told.
    What is not as its record says is not signed: that it is not, nobody could tell afterwards.
    """
    recipe, tool = find_recipe(name), Apptainer()
    target = image_file(recipe)
    with exclusive_lock(lock_path(recipe, tool)):
        read_sif(target)
        with atomic_path(target) as draft, step(f"sign {target.name}"):
            shutil.copyfile(target, draft)
            image = image_under_test(tool, str(draft), signed=False)
            require_unchanged(image)
            if image.recipe != recipe:
                raise CheckFailed(f"{target.name} is an image of recipe {image.recipe}", REBUILD_REMEDY)
            unsign(draft)
            how = ["--key", Path(key).absolute()] if key else ["--keyidx", pgp]
            run(["apptainer", "sign", *how, draft], remedy="is it a private key without a passphrase?")
            made = verified_image(draft)
        record = read_record(recipe, tool)
        if record:
            ledger.copy_trust(made.digest, str(record["digest"]))
            write_json(record_path(recipe, tool), {**record, "digest": made.digest})
        names = tool.tag_workloads(recipe)
    status(f"{target}: signed, {made.identity}, also called {', '.join(names)}")
