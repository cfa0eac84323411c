"""Names of what is erased: one for an entity of a model, and none that leads back."""

from uuid import UUID, uuid4

import pytest

from understudy.core.prediction_log.archive_plan import archive_key, file_key
from understudy.core.prediction_log.erasure import (
    erased_name,
    erased_prediction_id,
    first_key,
    names_entity,
    replacing_key,
)
from understudy.errors import ArchiveDiffers

SALTS = bytes(32), bytes(range(32))


def test_a_name_is_one_for_a_model_and_an_erasure_and_fits_the_column():
    names = {erased_name(salt, model) for salt in SALTS for model in ("churn", "visits/ä=%")}

    assert len(names) == 4
    assert {len(name) for name in names} == {39}
    assert erased_name(SALTS[1], "churn") == erased_name(SALTS[1], "churn")


def test_a_prediction_gets_the_same_id_wherever_it_is_met_and_however_it_is_written():
    prediction = str(uuid4())

    anew = erased_prediction_id(SALTS[1], prediction)

    assert str(UUID(anew)) == anew != prediction
    assert erased_prediction_id(SALTS[1], prediction.upper()) == anew
    assert erased_prediction_id(SALTS[0], prediction) != anew


def test_a_replacing_file_has_a_name_of_its_own_beside_the_one_that_it_replaces():
    first = file_key("churn", "2026-08-01", 17, 1, 0)

    second = replacing_key(first, 3)
    third = replacing_key(second, 12)

    assert second == "predictionlog/model=churn/day=2026-08-01/part-17-1-00000-e3.parquet"
    assert third == "predictionlog/model=churn/day=2026-08-01/part-17-1-00000-e12.parquet"
    assert archive_key(third) == third
    assert first_key(third) == first_key(second) == first


def test_a_manifest_is_no_file_with_rows():
    with pytest.raises(ArchiveDiffers, match="no Parquet file"):
        replacing_key("manifests/predictionlog_2026_08-17.json", 3)


@pytest.mark.parametrize(
    ("text", "entity", "is_named"),
    [
        ("erase customer-5.", "customer-5", True),
        ("for john smith of Berlin", "john smith", True),
        ("for John Smith", "john smith", True),
        ("customer-51", "customer-5", True),
        ("request 2026-118", "customer-5", False),
        ("request 2042", "42", False),
        ("request 2026-42", "42", True),
        ("(42)", "42", True),
        ("a*b", "a*b", True),
        ("aab", "a*b", False),
        ("", "42", False),
    ],
)
def test_a_text_names_an_entity_within_words_unless_its_id_is_short(text, entity, is_named):
    assert names_entity(text, entity) is is_named
