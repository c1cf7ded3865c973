"""What is in an image as SPDX 2.3 and CycloneDX 1.6 documents, by the libraries of the two formats.

The libraries write a draft, once for all images with the same packages; what tells one image from another comes into it
at each build. Nothing random and no moment of this run gets in: the same image gives the same documents.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from sifmark import __version__
from sifmark.attestations.packages import PYTHON, Package
from sifmark.core.files import compact_json
from sifmark.recipes.plan import Plan

SPDX, CYCLONEDX = "sbom.spdx.json", "sbom.cyclonedx.json"  # names of the documents
_SPACE = "https://sifmark.org/sbom"
_IMAGE = "SPDXRef-image"
_NO_DATE = datetime.fromtimestamp(0, UTC)  # of a draft


def draft_documents(plan: Plan, packages: Sequence[Package]) -> dict[str, Any]:
    """Both documents by their names, of any image with these packages on the plan's base."""
    return {SPDX: _spdx(plan, packages), CYCLONEDX: _cyclonedx(plan, packages)}


def finish_documents(plan: Plan, drafted: Mapping[str, Any], date: int) -> dict[str, bytes]:
    """Both as the plan's own image has them, made at a date, in seconds since 1970."""
    key, made = plan.build_key, datetime.fromtimestamp(date, UTC)
    name, version = f"sifmark-{plan.recipe.name}", f"{__version__}+{key.removeprefix('sha256:')[:12]}"
    spdx, cyclonedx = drafted[SPDX], drafted[CYCLONEDX]
    (image,) = (entry for entry in spdx["packages"] if entry["SPDXID"] == _IMAGE)
    spdx = {
        **spdx,
        "name": name,
        "documentNamespace": f"{_SPACE}/{key.removeprefix('sha256:')}",
        "creationInfo": {**spdx["creationInfo"], "created": made.strftime("%Y-%m-%dT%H:%M:%SZ")},
        "packages": [{**image, "name": name, "versionInfo": version}]
        + [entry for entry in spdx["packages"] if entry is not image],
    }
    metadata = cyclonedx["metadata"]
    cyclonedx = {
        **cyclonedx,
        "serialNumber": uuid5(NAMESPACE_URL, f"{_SPACE}/{key}").urn,
        "metadata": {
            **metadata,
            "timestamp": made.isoformat(),
            "component": {**metadata["component"], "name": name, "version": version},
        },
    }
    return {SPDX: compact_json(spdx), CYCLONEDX: compact_json(cyclonedx)}


def package_url(package: Package) -> str:
    """The package URL: github.com/package-url/purl-spec."""
    from packageurl import PackageURL

    if package.kind == PYTHON:
        return str(PackageURL("pypi", None, package.name, package.version))
    vendor = package.distribution.partition("-")[0]
    source = "" if package.source == package.name else package.source
    qualifiers = {"arch": package.architecture, "distro": package.distribution, "upstream": source}
    return str(PackageURL("deb", vendor, package.name, package.version, {k: v for k, v in qualifiers.items() if v}))


def base_package_url(plan: Plan) -> str:
    """The package URL of the base, by digest."""
    from packageurl import PackageURL

    name = plan.recipe.base.image.rpartition("/")[2]
    told = {"repository_url": plan.recipe.base.image, "tag": plan.recipe.base.tag}
    return str(PackageURL("oci", None, name, plan.base.digest, told))


def _spdx(plan: Plan, packages: Iterable[Package]) -> dict[str, Any]:
    from spdx_tools.spdx.jsonschema.document_converter import DocumentConverter
    from spdx_tools.spdx.model import (
        Actor,
        ActorType,
        CreationInfo,
        Document,
        ExternalPackageRef,
        ExternalPackageRefCategory,
        Relationship,
        RelationshipType,
    )
    from spdx_tools.spdx.model.package import Package as Entry
    from spdx_tools.spdx.model.spdx_no_assertion import SpdxNoAssertion

    def entry(spdx_id: str, name: str, version: str, url: str | None, licence: str = "") -> Entry:
        reference = url and ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", url)
        return Entry(
            spdx_id=spdx_id,
            name=name,
            download_location=SpdxNoAssertion(),
            version=version,
            files_analyzed=False,
            license_declared=SpdxNoAssertion(),
            comment=f"its record says of its licence: {licence}" if licence else None,
            external_references=[reference] if reference else [],
        )

    base = entry(
        "SPDXRef-base", plan.recipe.base.reference, plan.base.digest, base_package_url(plan), plan.recipe.base.licence
    )
    entries = [entry(_IMAGE, "image", "", None), base]
    entries += [
        entry(f"SPDXRef-package-{number}", package.name, package.version, package_url(package), package.licence)
        for number, package in enumerate(packages, start=1)
    ]
    contained = [Relationship(_IMAGE, RelationshipType.CONTAINS, other.spdx_id) for other in entries[1:]]
    document = Document(
        CreationInfo(
            spdx_version="SPDX-2.3",
            spdx_id="SPDXRef-DOCUMENT",
            name="image",
            document_namespace=_SPACE,
            creators=[Actor(ActorType.TOOL, f"sifmark-{__version__}")],
            created=_NO_DATE.replace(tzinfo=None),
        ),
        packages=entries,
        relationships=[
            Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, _IMAGE),
            *contained,
        ],
    )
    return dict(DocumentConverter().convert(document))


def _cyclonedx(plan: Plan, packages: Iterable[Package]) -> dict[str, Any]:
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import DisjunctiveLicense
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    def component(package: Package) -> Component:
        url = package_url(package)
        return Component(
            type=ComponentType.LIBRARY,
            name=package.name,
            version=package.version,
            bom_ref=f"{url}#{package.place}" if package.place else url,
            purl=PackageURL.from_string(url),
            licenses=[DisjunctiveLicense(name=package.licence)] if package.licence else [],
            properties=[Property(name="sifmark:place", value=package.place)] if package.place else [],
        )

    base = Component(
        type=ComponentType.CONTAINER,
        name=plan.recipe.base.reference,
        version=plan.base.digest,
        bom_ref="base",
        purl=PackageURL.from_string(base_package_url(plan)),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=plan.base.digest.removeprefix("sha256:"))],
        properties=[Property(name="sifmark:stand-in", value=str(plan.base.stand_in).lower())],
    )
    image = Component(type=ComponentType.CONTAINER, name="image", bom_ref="image")
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, _SPACE),
        metadata=BomMetaData(component=image, timestamp=_NO_DATE),
        components=[base, *map(component, packages)],
    )
    bom.register_dependency(image, [base])
    return dict(json.loads(JsonV1Dot6(bom).output_as_string()))
