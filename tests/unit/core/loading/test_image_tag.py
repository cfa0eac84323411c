"""How a version is called that a tag of an image registry names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.image_tag import CREATED, VERSION, image_of, names_same_image, said_version

DIGEST, OTHER = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32


@pytest.mark.parametrize(
    ("annotations", "label"),
    [
        ({VERSION: "2026.11", CREATED: "2026-11-28T03:00:00Z"}, "2026.11"),
        ({CREATED: "2026-11-28T03:00:00Z"}, "2026-11-28"),
        ({}, "ab" * 6),
        ({VERSION: ""}, "ab" * 6),
        ({VERSION: "v1/canary <b>"}, "v1-canary--b-"),
    ],
)
def test_a_version_is_called_what_its_image_says_or_by_its_digest(annotations, label):
    assert said_version(annotations, DIGEST) == label


@given(st.text())
def test_any_text_of_an_image_becomes_a_label_that_a_version_may_have(text):
    label = said_version({VERSION: text}, DIGEST)

    assert 0 < len(label) <= 80
    assert label.isascii()
    assert label.isprintable()


def test_an_image_is_the_same_by_its_digest_whatever_tag_it_has():
    pinned = f"oci://r:5000/models/visits:canary@{DIGEST}"

    assert names_same_image(f"oci://r:5000/models/visits:7@{DIGEST}", pinned)
    assert names_same_image(f"oci://r:5000/models/visits@{DIGEST}", pinned)
    assert not names_same_image(f"oci://r:5000/models/visits:canary@{OTHER}", pinned)
    assert not names_same_image(f"oci://r:5000/models/churn:canary@{DIGEST}", pinned)
    assert not names_same_image("visits/1/model.onnx", pinned)
    assert image_of("oci://r:5000/models/visits:canary") is None
