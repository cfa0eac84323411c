import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.prediction_log.input_sampling import MAX_SAMPLE_BYTES, SampleOutcome, encode_sample, is_sampled
from understudy.core.routing.route import bucket_of
from understudy.core.windows.analysis_buckets import analysis_bucket

percents = st.integers(0, 100)
entity_ids = st.text(st.characters(codec="utf-8"), min_size=1, max_size=50)


@given(entity_ids, percents, percents)
def test_a_larger_percentage_adds_entities_and_drops_none(entity_id, percent, other):
    low, high = sorted((percent, other))

    assert not is_sampled("churn", entity_id, low) or is_sampled("churn", entity_id, high)


@given(entity_ids)
def test_no_entity_is_sampled_at_zero_and_each_at_a_hundred(entity_id):
    assert not is_sampled("churn", entity_id, 0)
    assert is_sampled("churn", entity_id, 100)


def test_the_sample_has_its_share_of_every_routing_and_every_analysis_bucket():
    entities = [f"customer-{place}" for place in range(40_000)]

    sampled = [entity for entity in entities if is_sampled("churn", entity, 3)]

    # 1,200 of 40,000, standard deviation 34; a tenth of them in buckets below 10, standard deviation 10.4; an eighth in
    # analysis buckets below 8, standard deviation 11.5; six of each.
    assert abs(len(sampled) - 1_200) < 6 * 34
    assert abs(sum(bucket_of("churn", entity) < 10 for entity in sampled) - len(sampled) / 10) < 6 * 10.4
    assert abs(sum(analysis_bucket(entity) < 8 for entity in sampled) - len(sampled) / 8) < 6 * 11.5


def test_the_same_entities_are_sampled_for_ever():
    sampled = [entity for entity in map(str, range(100)) if is_sampled("churn", entity, 5)]

    # Written down once: another hash would compare this week's entities with other ones of last week.
    assert sampled == ["7", "18", "93", "94", "96"]


def test_two_models_sample_different_entities():
    entities = [f"customer-{place}" for place in range(1_000)]

    both = sum(is_sampled("churn", entity, 10) and is_sampled("fraud", entity, 10) for entity in entities)

    # 10 by chance, standard deviation 3.1; the same entities would be about 100.
    assert both < 10 + 6 * 3.1


def test_a_sample_is_the_json_text_of_the_values():
    text, outcome = encode_sample({"plan": "pro", "age": 41.5, "is_new": True, "note": None})

    assert outcome is SampleOutcome.STORED
    assert text == b'{"plan":"pro","age":41.5,"is_new":true,"note":null}'


@pytest.mark.parametrize(("more", "outcome"), [(0, SampleOutcome.STORED), (1, SampleOutcome.TOO_LARGE)])
def test_a_sample_of_more_than_eight_kibibytes_is_not_stored(more, outcome):
    frame = len(orjson.dumps({"note": ""}))

    text, found = encode_sample({"note": "x" * (MAX_SAMPLE_BYTES - frame + more)})

    assert found is outcome
    assert (text is None) is (outcome is SampleOutcome.TOO_LARGE)


@pytest.mark.parametrize("value", ["a\0b", "half \ud83d", 2**64])
def test_what_the_database_would_refuse_is_not_stored(value):
    assert encode_sample({"note": value}) == (None, SampleOutcome.UNSTORABLE)
