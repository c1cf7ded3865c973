"""The provenance of an image: an in-toto statement with SLSA provenance, both in version 1.

Formats: github.com/in-toto/attestation, spec/v1; slsa.dev/spec/v1.0/provenance. It has no date: the same sources give
the same statement.
"""

from typing import Any

from sifmark import __version__
from sifmark.core import git
from sifmark.core.files import compact_json
from sifmark.recipes.plan import Plan

NAME = "provenance.json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://sifmark.org/build/v1"


def statement(plan: Plan, subjects: dict[str, str], builder: str) -> bytes:
    """Return the statement of a plan's build.

    `subjects` maps parts of the image to their SHA-256 in hexadecimal; `builder` is the URI of who builds.
    """
    document = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "recipe": plan.recipe.name,
                    "platform": plan.platform,
                    "bases": "stand-in" if plan.base.stand_in else "pinned",
                    "compression": plan.compression,
                },
                "internalParameters": {"buildKey": plan.build_key},
                "resolvedDependencies": list(_dependencies(plan)),
            },
            "runDetails": {"builder": {"id": builder, "version": {"sifmark": __version__}}},
        },
    }
    return compact_json(document)


def _dependencies(plan: Plan) -> list[dict[str, Any]]:
    """Return base, lock and commit as SLSA resource descriptors."""
    base = plan.recipe.base
    dependencies: list[dict[str, Any]] = [
        {"uri": f"docker://{base.reference}", "digest": {"sha256": plan.base.digest.removeprefix("sha256:")}},
        {"name": plan.recipe.lock(plan.target).name, "digest": {"sha256": plan.lock_hash.removeprefix("sha256:")}},
    ]
    if plan.base.stand_in:
        dependencies[0]["annotations"] = {"standIn": True}
    if (commit := git.revision()) is not None:
        commit_hash, is_dirty, _ = commit.partition("-dirty")
        source: dict[str, Any] = {"name": "source", "digest": {"gitCommit": commit_hash}}
        dependencies.append({**source, "annotations": {"changedSince": True}} if is_dirty else source)
    return dependencies
