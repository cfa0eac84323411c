"""Manifests of OCI artifacts: which blobs are which files. What is refused is in the contract of their origin."""

from typing import Any

import pytest

from understudy.core.loading.oci_manifest import Packing, is_list, layers_of, sole_manifest

DIGEST = "sha256:" + "ab" * 32
TAR = "application/vnd.oci.image.layer.v1.tar"
TITLE = "org.opencontainers.image.title"


def a_layer(media_type: str, **annotations: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": DIGEST, "size": 3, "annotations": annotations}


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (a_layer(TAR), (Packing.TAR, "")),
        (a_layer(f"{TAR}+gzip"), (Packing.TAR_GZIP, "")),
        (a_layer("application/vnd.docker.image.rootfs.diff.tar.gzip"), (Packing.TAR_GZIP, "")),
        (a_layer("any/kind", **{TITLE: "a.onnx"}), (Packing.FILE, "a.onnx")),
        (a_layer(TAR, **{TITLE: "a.onnx"}), (Packing.FILE, "a.onnx")),
        (a_layer(f"{TAR}+gzip", **{TITLE: "a", "io.deis.oras.content.unpack": "true"}), (Packing.TAR_GZIP, "")),
    ],
)
def test_a_layer_with_a_title_is_a_file_and_one_of_an_image_a_tar(layer, expected):
    (found,) = layers_of({"schemaVersion": 2, "layers": [layer]})

    assert (found.packing, found.title) == expected
    assert (found.digest, found.size) == (DIGEST, 3)


def test_a_list_is_known_by_its_content_and_its_attestations_are_no_artifacts():
    attested = {**a_layer("m", **{"vnd.docker.reference.type": "attestation-manifest"}), "digest": "sha256:" + "0" * 64}
    index = {"schemaVersion": 2, "manifests": [a_layer("m"), attested]}

    assert is_list(index)
    assert sole_manifest(index) == DIGEST
    with pytest.raises(ValueError, match="unknown kind"):
        layers_of(index)
