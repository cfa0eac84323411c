from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from understudy.core.prediction_log.call_slices import MAX_CHARACTERS, Slice, call_slices, slices_of
from understudy.core.schema.features import Feature
from understudy.core.schema.tensors import Datatype

COUNTRY = Feature("country", Datatype.BYTES, default="DE", has_default=True, is_slice=True)
IS_NEW = Feature("is_new", Datatype.BOOL, is_slice=True)
TIER = Feature("tier", Datatype.INT64, stored=True, is_slice=True)


def written(
    category: str | None = None,
    features: Sequence[Feature] = (),
    inputs: Mapping[str, Any] | None = None,
    stored: Mapping[str, Any] | None = None,
) -> Any:
    text = call_slices("ada", category, features, inputs or {}, stored)
    return None if text is None else orjson.loads(text)


def test_a_call_without_category_and_marked_features_has_none():
    assert written() is None


def test_a_category_and_values_of_marked_features_are_texts():
    found = written("gold", (COUNTRY, IS_NEW, TIER), {"country": "FR", "is_new": True}, {"tier": 3})

    assert found == {"category": "gold", "country": "FR", "is_new": "true", "tier": "3"}


def test_a_whole_float_of_an_integer_feature_is_in_the_slice_of_the_integer():
    assert written(None, (TIER,), {"tier": 3.0}) == written(None, (TIER,), {}, {"tier": 3.0}) == {"tier": "3"}


def test_what_a_caller_leaves_out_is_the_default_that_the_version_takes():
    assert written(None, (COUNTRY, TIER), {}) == {"country": "DE"}


@pytest.mark.parametrize("value", ["ada", "", "x" * (MAX_CHARACTERS + 1), "a\x00b", "\ud800", "a\nb", 1.5, ["a"]])
def test_what_is_no_label_or_names_the_entity_is_other(value):
    assert written(None, (COUNTRY,), {"country": value}) == {"country": "other"}


def test_what_was_written_is_read():
    text = call_slices("ada", "gold", (COUNTRY,), {}, None)

    assert text is not None
    assert slices_of(text) == (Slice("category", "gold"), Slice("country", "DE"))
    assert str(slices_of(text)[0]) == "category=gold"


@pytest.mark.parametrize("text", [b"", b"N", b"[1]", b'{"a": 1}', b'{"a": ""}', b'{"": "b"}', b'{"a": "\\u0000"}'])
def test_what_is_no_slice_is_none(text):
    assert slices_of(text) == ()
