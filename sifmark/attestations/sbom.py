"""The packages of an image as SPDX 2.3 and CycloneDX 1.6 documents, by the libraries of the two formats.

The libraries write a draft, once for all images with the same packages; each build completes it with what differs
between images. The documents have nothing random, and no date but the image's: the same image gives the same documents.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from sifmark import __version__
from sifmark.attestations.packages import PYTHON, Package
from sifmark.core.files import compact_json
from sifmark.recipes.plan import Plan

# Imported where documents are drafted: they take a while to import, and most commands draft none.
if TYPE_CHECKING:
    from cyclonedx.model.component import Component
    from spdx_tools.spdx.model.package import Package as SpdxPackage

SPDX, CYCLONEDX = "sbom.spdx.json", "sbom.cyclonedx.json"  # names of the documents
_SPACE = "https://sifmark.org/sbom"
_IMAGE, _DOCUMENT = "SPDXRef-image", "SPDXRef-DOCUMENT"
_SUPPLIER = "sifmark"  # of images
_NO_DATE = datetime.fromtimestamp(0, UTC)  # of a draft


def draft_documents(plan: Plan, packages: Sequence[Package]) -> dict[str, Any]:
    """Return both documents by name, for any image with these packages on the plan's base."""
    return {SPDX: _spdx(plan, packages), CYCLONEDX: _cyclonedx(plan, packages)}


def finish_documents(plan: Plan, drafts: Mapping[str, Any], date: int) -> dict[str, bytes]:
    """Return both documents of the plan's own image, dated in seconds since 1970."""
    created = datetime.fromtimestamp(date, UTC)
    name, key = f"sifmark-{plan.recipe.name}", plan.build_key.removeprefix("sha256:")
    version = f"{__version__}+{key[:12]}"
    return {
        SPDX: compact_json(_finish_spdx(drafts[SPDX], name, version, key, created)),
        CYCLONEDX: compact_json(_finish_cyclonedx(drafts[CYCLONEDX], name, version, plan.build_key, created)),
    }


def package_url(package: Package) -> str:
    """Return a package URL: github.com/package-url/purl-spec."""
    from packageurl import PackageURL

    if package.kind == PYTHON:
        return str(PackageURL("pypi", None, package.name, package.version))
    vendor = package.distribution.partition("-")[0]
    source = "" if package.source == package.name else package.source
    qualifiers = {"arch": package.architecture, "distro": package.distribution, "upstream": source}
    return str(PackageURL("deb", vendor, package.name, package.version, {k: v for k, v in qualifiers.items() if v}))


def base_package_url(plan: Plan) -> str:
    """Return the package URL of the base, by digest."""
    from packageurl import PackageURL

    name = plan.recipe.base.image.rpartition("/")[2]
    qualifiers = {"repository_url": plan.recipe.base.image, "tag": plan.recipe.base.tag}
    return str(PackageURL("oci", None, name, plan.base.digest, qualifiers))


def base_supplier(plan: Plan) -> str:
    """Return who publishes the base: its registry, and the name that it belongs to there."""
    registry, *names = plan.recipe.base.image.split("/")
    return f"{registry}/{names[0]}" if len(names) > 1 else registry


def _finish_spdx(draft: dict[str, Any], name: str, version: str, key: str, created: datetime) -> dict[str, Any]:
    (image,) = (entry for entry in draft["packages"] if entry["SPDXID"] == _IMAGE)
    return {
        **draft,
        "name": name,
        "documentNamespace": f"{_SPACE}/{key}",
        "creationInfo": {**draft["creationInfo"], "created": created.strftime("%Y-%m-%dT%H:%M:%SZ")},
        "packages": [
            {**image, "name": name, "versionInfo": version},
            *(entry for entry in draft["packages"] if entry is not image),
        ],
    }


def _finish_cyclonedx(draft: dict[str, Any], name: str, version: str, key: str, created: datetime) -> dict[str, Any]:
    metadata = draft["metadata"]
    return {
        **draft,
        "serialNumber": uuid5(NAMESPACE_URL, f"{_SPACE}/{key}").urn,
        "metadata": {
            **metadata,
            "timestamp": created.isoformat(),
            "component": {**metadata["component"], "name": name, "version": version},
        },
    }


def _spdx(plan: Plan, packages: Iterable[Package]) -> dict[str, Any]:
    from spdx_tools.spdx.jsonschema.document_converter import DocumentConverter
    from spdx_tools.spdx.model import Actor, ActorType, CreationInfo, Document, Relationship, RelationshipType

    base = plan.recipe.base
    entries = [
        _spdx_package(_IMAGE, "image", "", supplier=_SUPPLIER),
        _spdx_package(
            *("SPDXRef-base", base.reference, plan.base.digest),
            supplier=base_supplier(plan),
            url=base_package_url(plan),
            licence=base.licence,
        ),
    ]
    entries += [
        _spdx_package(
            *(f"SPDXRef-package-{number}", package.name, package.version),
            supplier=package.supplier,
            url=package_url(package),
            licence=package.licence,
        )
        for number, package in enumerate(packages, start=1)
    ]
    contained = [Relationship(_IMAGE, RelationshipType.CONTAINS, entry.spdx_id) for entry in entries[1:]]
    document = Document(
        CreationInfo(
            spdx_version="SPDX-2.3",
            spdx_id=_DOCUMENT,
            name="image",
            document_namespace=_SPACE,
            creators=[Actor(ActorType.TOOL, f"sifmark-{__version__}")],
            created=_NO_DATE.replace(tzinfo=None),
        ),
        packages=entries,
        relationships=[Relationship(_DOCUMENT, RelationshipType.DESCRIBES, _IMAGE), *contained],
    )
    return dict(DocumentConverter().convert(document))


def _spdx_package(
    spdx_id: str, name: str, version: str, *, supplier: str, url: str = "", licence: str = ""
) -> "SpdxPackage":
    from spdx_tools.spdx.model import Actor, ActorType, ExternalPackageRef, ExternalPackageRefCategory
    from spdx_tools.spdx.model.package import Package as SpdxPackage
    from spdx_tools.spdx.model.spdx_no_assertion import SpdxNoAssertion

    return SpdxPackage(
        spdx_id=spdx_id,
        name=name,
        download_location=SpdxNoAssertion(),
        version=version,
        supplier=Actor(ActorType.ORGANIZATION, supplier),
        files_analyzed=False,
        license_declared=SpdxNoAssertion(),
        comment=f"its record says of its licence: {licence}" if licence else None,
        external_references=[ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", url)]
        if url
        else [],
    )


def _cyclonedx(plan: Plan, packages: Iterable[Package]) -> dict[str, Any]:
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.contact import OrganizationalEntity
    from cyclonedx.output.json import JsonV1Dot6

    base = _cyclonedx_base(plan)
    own = OrganizationalEntity(name=_SUPPLIER)
    image = Component(type=ComponentType.CONTAINER, name="image", bom_ref="image", supplier=own)
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, _SPACE),
        metadata=BomMetaData(component=image, timestamp=_NO_DATE),
        components=[base, *map(_cyclonedx_package, packages)],
    )
    bom.register_dependency(image, [base])
    return dict(json.loads(JsonV1Dot6(bom).output_as_string()))


def _cyclonedx_base(plan: Plan) -> "Component":
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.contact import OrganizationalEntity
    from packageurl import PackageURL

    return Component(
        type=ComponentType.CONTAINER,
        name=plan.recipe.base.reference,
        version=plan.base.digest,
        bom_ref="base",
        supplier=OrganizationalEntity(name=base_supplier(plan)),
        purl=PackageURL.from_string(base_package_url(plan)),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=plan.base.digest.removeprefix("sha256:"))],
        properties=[Property(name="sifmark:stand-in", value=str(plan.base.stand_in).lower())],
    )


def _cyclonedx_package(package: Package) -> "Component":
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.contact import OrganizationalEntity
    from cyclonedx.model.license import DisjunctiveLicense
    from packageurl import PackageURL

    url = package_url(package)
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        supplier=OrganizationalEntity(name=package.supplier),
        bom_ref=f"{url}#{package.place}" if package.place else url,
        purl=PackageURL.from_string(url),
        licenses=[DisjunctiveLicense(name=package.licence)] if package.licence else [],
        properties=[Property(name="sifmark:place", value=package.place)] if package.place else [],
    )
