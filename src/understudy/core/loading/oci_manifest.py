"""Manifests of OCI artifacts: which blobs make up the files of an artifact, and how.

Source: OCI image-spec 1.1, manifest and index; the annotations of files and folders are those of ORAS.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
ACCEPTED: Final = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST)
MAX_MANIFEST_BYTES: Final = 4 * 1024**2
"""As the distribution-spec has registries take at least."""
MAX_LAYERS: Final = 1_000
_EMPTY: Final = "application/vnd.oci.empty.v1+json"
_TITLE: Final = "org.opencontainers.image.title"
_UNPACK: Final = "io.deis.oras.content.unpack"
_ATTESTED: Final = "vnd.docker.reference.type"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAMED: Final = 5
"""Manifests of a list that are named in a refusal."""


class Packing(StrEnum):
    """How a blob holds files."""

    FILE = "file"
    TAR = "tar"
    TAR_GZIP = "tar+gzip"


_PACKINGS: Final[Mapping[str, Packing]] = {
    "application/vnd.oci.image.layer.v1.tar": Packing.TAR,
    "application/vnd.oci.image.layer.v1.tar+gzip": Packing.TAR_GZIP,
    "application/vnd.docker.image.rootfs.diff.tar": Packing.TAR,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": Packing.TAR_GZIP,
}


class Layer(NamedTuple):
    """A blob with files of the artifact."""

    digest: str
    size: int
    packing: Packing
    title: str
    """The file's path, where it is one."""


def layers_of(manifest: Any) -> Sequence[Layer]:
    """Return the layers of a manifest in their order.

    Raises:
        ValueError: It is none, or has a layer of a kind that is not read; the message says so.
    """
    if not isinstance(manifest, dict) or manifest.get("schemaVersion") != 2 or "manifests" in manifest:  # noqa: PLR2004 - the only one
        raise ValueError("has a manifest of an unknown kind")
    if manifest.get("mediaType", OCI_MANIFEST) not in (OCI_MANIFEST, DOCKER_MANIFEST):
        raise ValueError(f"has a manifest of the media type {str(manifest['mediaType'])[:100]!r}, which is not read")
    described = manifest.get("layers")
    if not isinstance(described, list) or len(described) > MAX_LAYERS:
        raise ValueError(f"has a manifest without layers, or with more than {MAX_LAYERS:,}")
    layers = (_layer(number, one) for number, one in enumerate(described, 1))
    return [layer for layer in layers if layer is not None]


def annotations_of(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what a manifest says of the image: texts under names; what is none is left out."""
    return {name: text for name, text in _annotations(manifest).items() if isinstance(text, str)}


def sole_manifest(index: Any) -> str:
    """Return the digest of the one manifest in a list, besides those that attest others.

    A version is the same on every server, so none is chosen by a platform.

    Raises:
        ValueError: There are several, or none.
    """
    entries = index.get("manifests") if isinstance(index, dict) else None
    if not isinstance(entries, list) or not all(_is_descriptor(entry) for entry in entries) or "layers" in index:
        raise ValueError("has a list of manifests that cannot be read")
    digests = [entry["digest"] for entry in entries if _ATTESTED not in _annotations(entry)]
    if len(digests) != 1:
        named = ", ".join(digests[:_NAMED]) or "none"
        raise ValueError(f"is a list of {len(digests)} manifests: register one of them by its digest, of {named}")
    return str(digests[0])


def is_list(document: Any) -> bool:
    """Whether a document is a list of manifests; its content says so, as no header that comes with it is signed."""
    return isinstance(document, dict) and "manifests" in document


def _layer(number: int, described: Any) -> Layer | None:
    if not _is_descriptor(described):
        raise ValueError(f"has a layer {number} without a SHA-256, a size or a media type")
    media_type, annotations = described["mediaType"], _annotations(described)
    if media_type == _EMPTY:
        return None
    title, packing = annotations.get(_TITLE), _PACKINGS.get(media_type)
    if isinstance(title, str) and annotations.get(_UNPACK) != "true":
        return Layer(described["digest"], described["size"], Packing.FILE, title)
    if packing is None:
        raise ValueError(
            f"has a layer {number} of the media type {media_type[:100]!r}, which is not read without a title"
        )
    return Layer(described["digest"], described["size"], packing, "")


def _is_descriptor(described: Any) -> bool:
    return (
        isinstance(described, dict)
        and isinstance(described.get("digest"), str)
        and _DIGEST.fullmatch(described["digest"]) is not None
        and type(described.get("size")) is int
        and described["size"] >= 0
        and isinstance(described.get("mediaType"), str)
    )


def _annotations(described: Mapping[str, Any]) -> Mapping[str, Any]:
    found = described.get("annotations")
    return found if isinstance(found, dict) else {}
