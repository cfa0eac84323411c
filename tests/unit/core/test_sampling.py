import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.routing import bucket_of
from understudy.core.sampling import InputSampling, is_sampled, redacted

KEY = b"0123456789abcdef"
percents = st.floats(0, 100)
entity_ids = st.text(min_size=1, max_size=50)
inputs = {"email": "dana@example.org", "country": "BR", "tenure": 14, "plan": None}


@given(entity_ids, percents, percents)
def test_a_larger_percentage_adds_entities_and_drops_none(entity_id, percent, other):
    low, high = sorted((percent, other))

    assert not is_sampled("churn", entity_id, low) or is_sampled("churn", entity_id, high)


@given(entity_ids)
def test_nobody_is_sampled_at_zero_and_everybody_at_a_hundred(entity_id):
    assert not is_sampled("churn", entity_id, 0)
    assert is_sampled("churn", entity_id, 100)


def test_the_sample_has_its_share_of_every_routing_bucket():
    entities = [f"customer-{place}" for place in range(40_000)]

    sampled = [entity for entity in entities if is_sampled("churn", entity, 2.5)]

    # 1,000 of 40,000, standard deviation 31; a tenth of them in buckets below 10, standard deviation 9.5; six of each.
    assert abs(len(sampled) - 1_000) < 6 * 31
    assert abs(sum(bucket_of("churn", entity) < 10 for entity in sampled) - len(sampled) / 10) < 6 * 9.5


def test_the_same_entities_are_sampled_for_ever():
    sampled = [entity for entity in map(str, range(100)) if is_sampled("churn", entity, 5)]

    # Written down once: another hash would compare this week's entities with other ones of last week.
    assert sampled == ["7", "18", "93", "94", "96"]


def test_nothing_is_stored_unless_it_is_asked_for():
    assert InputSampling().percent == 0


def test_named_features_are_dropped_or_hashed_and_the_others_kept():
    sampling = InputSampling(percent=5, hashed=frozenset({"country", "plan"}), dropped=frozenset({"email"}))

    stored = redacted(inputs, sampling, KEY)

    assert stored.keys() == {"country", "tenure", "plan"}
    assert (stored["tenure"], stored["plan"]) == (14, None)
    assert len(stored["country"]) == 32
    assert "BR" not in stored["country"]


def test_a_hash_tells_equal_values_of_one_feature_under_one_key_and_nothing_more():
    def hashed(name: str, value: object, key: bytes = KEY) -> object:
        return redacted({name: value}, InputSampling(hashed=frozenset({name})), key)[name]

    assert hashed("country", "BR") == hashed("country", "BR")
    assert hashed("address", {"a": 1, "b": 2}) == hashed("address", {"b": 2, "a": 1})
    others = {hashed("country", "US"), hashed("origin", "BR"), hashed("country", "BR", KEY + b"!")}
    others |= {hashed("country", "BR", KEY * 5), hashed("country", "BR", KEY * 6)}
    assert len(others - {hashed("country", "BR")}) == 5


def test_a_short_key_is_refused_where_one_is_needed():
    assert redacted(inputs, InputSampling(), b"") == inputs
    with pytest.raises(ValueError, match="key: expected at least 16 bytes"):
        redacted(inputs, InputSampling(hashed=frozenset({"email"})), b"short")


@pytest.mark.parametrize("percent", [-1, 100.1, float("nan")])
def test_a_percentage_out_of_range_is_refused(percent):
    with pytest.raises(ValueError, match="percent: expected"):
        InputSampling(percent=percent)


def test_a_feature_cannot_be_hashed_and_dropped():
    with pytest.raises(ValueError, match="email"):
        InputSampling(hashed=frozenset({"email"}), dropped=frozenset({"email", "phone"}))
