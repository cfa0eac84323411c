import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.floating_label import (
    CREATED,
    STEPS,
    VERSION,
    image_of,
    names_same_image,
    rollout_steps,
    version_label,
)

DIGEST, OTHER = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32


@pytest.mark.parametrize(
    ("annotations", "label"),
    [
        ({VERSION: "2026.11", CREATED: "2026-11-28T03:00:00Z"}, "2026.11"),
        ({CREATED: "2026-11-28T03:00:00Z"}, "2026-11-28"),
        ({}, "ab" * 6),
        ({VERSION: ""}, "ab" * 6),
        ({VERSION: "v1/canary <b>"}, "v1-canary--b-"),
        ({VERSION: "taken"}, "taken-" + "ab" * 6),
    ],
)
def test_a_version_is_called_what_its_image_says_or_by_its_digest(annotations, label):
    assert version_label(annotations, DIGEST, ["taken"]) == label


@given(st.text(), st.sets(st.text(), max_size=3))
def test_any_text_of_an_image_becomes_a_label_that_a_version_may_have(text, taken):
    label = version_label({VERSION: text}, DIGEST, taken)

    assert 0 < len(label) <= 100
    assert label.isascii()
    assert label.isprintable()


def test_the_steps_of_an_image_are_taken_and_end_with_all_calls():
    assert rollout_steps({}, 10) is None
    assert rollout_steps({STEPS: "1, 5,25,50"}, 10) == "1,5,25,50,100"
    assert rollout_steps({STEPS: "10,100"}, 10) == "10,100"


@pytest.mark.parametrize("steps", ["", "0,5", "5,1", "5,5", "50%", "1,101", "1;DROP", "1" * 100])
def test_steps_that_are_none_are_refused_with_what_they_are(steps):
    with pytest.raises(ValueError, match="not rising percents by commas, such as 1,5,25,50"):
        rollout_steps({STEPS: steps}, 10)


def test_a_first_step_that_is_larger_than_is_permitted_is_refused():
    with pytest.raises(ValueError, match="begins with 25 %, and at most 10 % is taken"):
        rollout_steps({STEPS: "25,50"}, 10)
    assert rollout_steps({STEPS: "25,50"}, 25) == "25,50,100"


def test_an_image_is_the_same_by_its_digest_whatever_tag_it_has():
    pinned = f"oci://r:5000/models/visits:canary@{DIGEST}"

    assert names_same_image(f"oci://r:5000/models/visits:7@{DIGEST}", pinned)
    assert names_same_image(f"oci://r:5000/models/visits@{DIGEST}", pinned)
    assert not names_same_image(f"oci://r:5000/models/visits:canary@{OTHER}", pinned)
    assert not names_same_image(f"oci://r:5000/models/churn:canary@{DIGEST}", pinned)
    assert not names_same_image("visits/1/model.onnx", pinned)
    assert image_of("oci://r:5000/models/visits:canary") is None
