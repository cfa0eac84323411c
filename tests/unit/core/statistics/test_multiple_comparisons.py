import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.statistics.difference import Difference
from understudy.core.statistics.multiple_comparisons import compare_together, holm_adjusted
from understudy.core.statistics.sample_size import always_valid_boundary

PLANNED = 5_000
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def a_difference(standard_errors: float, entities: int = 5_000) -> Difference:
    size = float(entities)
    level = Difference(entities, entities, size, size, 0.1, 0.1, 0.0, 0.09, 0.09)
    return level._replace(difference=standard_errors * level.standard_error)


def test_holms_p_values_are_those_that_are_known():
    # As R's p.adjust has them.
    assert holm_adjusted([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_adjusted([0.03]) == [0.03]
    assert holm_adjusted([]) == []


@given(p_values)
def test_an_adjusted_p_value_lies_between_its_own_and_bonferronis_and_keeps_the_order(found):
    adjusted = holm_adjusted(found)

    for own, corrected in zip(found, adjusted, strict=True):
        assert own <= corrected <= min(1.0, len(found) * own)
    assert [sorted(adjusted)] == [[adjusted[place] for place in sorted(range(len(found)), key=lambda at: found[at])]]


@given(st.lists(st.floats(-6, 6), min_size=1, max_size=6))
def test_an_interval_without_zero_and_a_small_p_value_are_one_thing(distances):
    differences = [(a_difference(distance), PLANNED) for distance in distances]

    found = compare_together(differences, len(differences))

    for own in found:
        is_away = own.low > 0 or own.high < 0
        assert is_away == (own.p_value * len(found) < 0.05)
        if is_away:
            assert own.adjusted_p_value <= 0.05


def test_one_comparison_alone_is_not_corrected():
    difference = a_difference(3.0)

    (found,) = compare_together([(difference, PLANNED)], 1)

    reach = always_valid_boundary(1.0) * difference.standard_error
    assert (found.low, found.high) == pytest.approx((difference.difference - reach, difference.difference + reach))
    assert found.adjusted_p_value == found.p_value


def test_an_arm_without_enough_entities_counts_among_the_comparisons():
    (alone,) = compare_together([(a_difference(4.5), PLANNED)], 1)

    (beside_two,) = compare_together([(a_difference(4.5), PLANNED)], 3)

    assert beside_two.adjusted_p_value == pytest.approx(3 * beside_two.p_value)
    assert beside_two.high - beside_two.low > alone.high - alone.low


def test_a_difference_of_which_nothing_is_known_has_no_small_p_value():
    exact = a_difference(0.0)._replace(difference=0.01, variance_a=0.0, variance_b=0.0)

    assert compare_together([(exact, PLANNED)], 1)[0].p_value == 1.0
