"""Answers as values."""

import pandas as pd
import polars as pl
import pytest

from understudy.client.answers import BatchAnswer, BestTreatment, Fallback, Prediction, Ranking, Receipt, StoredOutcomes
from understudy.client.problems import ProxyAway
from understudy.errors import EntityIdInvalid

ANSWERED = {"model": "visits", "version": "1", "role": "champion", "prediction_id": "01a1", "generation": 3}


def test_a_score_is_a_score():
    found = Prediction.read({**ANSWERED, "prediction": {"score": 0.5}, "defaulted": ["age"]})

    assert (found.score, found.label, found.version, found.generation) == (0.5, None, "1", 3)
    assert (found.defaulted, found.fallback) == (("age",), None)


@pytest.mark.parametrize(
    ("said", "label", "scores", "labels"),
    [
        ({"label": 3, "scores": [0.1, 0.9]}, 3, (0.1, 0.9), None),
        ({"label": "no"}, "no", None, None),
        ({"labels": [1, 2]}, None, None, (1, 2)),
    ],
)
def test_a_label_has_its_scores_and_labels_are_a_tuple(said, label, scores, labels):
    found = Prediction.read({**ANSWERED, "prediction": said})

    assert (found.label, found.scores, found.labels) == (label, scores, labels)


def test_a_fallback_says_for_which_version_and_why():
    found = Prediction.read({
        **ANSWERED, "prediction": {"score": 1}, "fallback": {"from_version": "3", "code": "E502"},
    })  # fmt: skip

    assert found.fallback == Fallback("3", "E502")


def test_a_batch_keeps_its_order_and_its_errors():
    good = {**ANSWERED, "prediction": {"score": 0.5}, "entity_id": "dana"}
    bad = {"error": {"code": "E102", "detail": "it is empty"}}

    answer = BatchAnswer.read([{"predictions": [good, bad]}, {"predictions": [good]}])

    assert [member.prediction is not None for member in answer.members] == [True, False, True]
    assert answer.failed == 1
    with pytest.raises(EntityIdInvalid, match="it is empty"):
        answer.predictions()
    (all_good,) = BatchAnswer.read([{"predictions": [good]}]).predictions()
    assert all_good.entity_id == "dana"


def test_a_batch_is_shown_in_short_and_has_a_row_for_each_entity():
    good = {**ANSWERED, "prediction": {"score": 0.5}, "entity_id": "dana"}
    bad = {"error": {"code": "E102", "detail": "it is empty"}}

    answer = BatchAnswer.read([{"predictions": [good, bad]}])
    frame = pd.DataFrame(answer.to_dicts())

    assert repr(answer) == "BatchAnswer(2 members, 1 failed)"
    assert pl.DataFrame(answer.to_dicts())["entity_id"].to_list() == ["dana", None]
    assert frame.score.mean() == 0.5
    assert list(frame.error_code.fillna("")) == ["", "E102"]
    assert frame.error[1] == "it is empty"


def test_a_ranking_has_all_scores_or_the_best():
    all_of_them = Ranking.read({**ANSWERED, "prediction": {"treatments": 2, "scores": [0.3, 0.1]}})
    best = Ranking.read({**ANSWERED, "prediction": {"treatments": 2, "best": [{"id": "mail", "score": 0.3}]}})

    assert (all_of_them.scores, all_of_them.best, all_of_them.treatments) == ((0.3, 0.1), None, 2)
    assert (best.scores, best.best) == (None, (BestTreatment("mail", 0.3),))


def test_what_a_later_release_adds_to_a_receipt_is_left_out():
    said = dict.fromkeys(Receipt._fields)

    assert Receipt.read({**said, "version": "1", "more": True}).version == "1"


def test_stored_outcomes_are_summed_and_a_new_name_is_told_once():
    converted = {"model": "visits", "name": "convreted"}
    told = [{"new": 2, "known": 1, "new_metrics": [converted]}, {"new": 3, "known": 0, "new_metrics": [converted]}]

    assert StoredOutcomes.read(told) == StoredOutcomes(5, 1, (("visits", "convreted"),))


def test_a_proxy_that_does_not_tell_new_names_stores_outcomes_all_the_same():
    assert StoredOutcomes.read([{"new": 2, "known": 1}, {"new": 3, "known": 0}]) == StoredOutcomes(5, 1)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"prediction": None},
        {"prediction": "x"},
        {"prediction": {"scores": 1}},
        {"prediction": {"scores": "abc"}},
        {"prediction": {"score": 1}, "fallback": "x"},
        {"prediction": {"score": 1}, "defaulted": 5},
    ],
)
def test_json_that_no_proxy_writes_is_another_servers(changed):
    with pytest.raises(ProxyAway, match="no proxy of this version") as raised:
        Prediction.read({**ANSWERED, **changed})

    assert not raised.value.is_passing


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (Prediction, {}),
        (Ranking, {}),
        (Ranking, {**ANSWERED, "prediction": {"treatments": 1, "best": [1]}}),
        (Receipt, {}),
        (BatchAnswer, [{}]),
        (BatchAnswer, [{"predictions": 5}]),
        (BatchAnswer, [{"predictions": ["x"]}]),
        (BatchAnswer, [{"predictions": [{"error": "x"}]}]),
        (StoredOutcomes, [{"new": "x", "known": 1}]),
        (StoredOutcomes, [{}]),
    ],
)
def test_rankings_receipts_batches_and_outcomes_of_another_form_are_another_servers(kind, document):
    with pytest.raises(ProxyAway, match="no proxy of this version"):
        kind.read(document)
