import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from understudy.core.statistics.sample_size import (
    ALPHA,
    FIVE_LOOKS,
    POWER_RATIO,
    REFERENCE_ONE_SAMPLE,
    Effect,
    always_valid_boundary,
    detectable_difference,
    entities_per_arm,
    look_boundaries,
    look_fractions,
    normal_quantile,
    power_of,
    reference_sample_size,
    relative_change,
    sample_inflation_ratio,
    spent_alpha,
    when_known,
)

TWO_SAMPLE = {0.01: 156_979, 0.02: 39_246, 0.05: 6_281, 0.10: 1_571, 0.15: 699, 0.20: 394}
effects = st.builds(Effect, st.floats(0.05, 2), st.floats(0.1, 4), st.floats(0.1, 4))
look_plans = st.lists(st.integers(1, 99), min_size=0, max_size=5, unique=True).map(
    lambda percents: (*(percent / 100 for percent in sorted(percents)), 1.0)
)


@pytest.mark.parametrize(("ratio", "entities"), TWO_SAMPLE.items())
def test_two_arms_need_the_two_sample_size(ratio, entities):
    assert entities_per_arm(relative_change(ratio)) == entities


@pytest.mark.parametrize(("ratio", "entities"), REFERENCE_ONE_SAMPLE.items())
def test_the_seeds_figure_is_given_with_the_half_power_that_it_has(ratio, entities):
    asked = reference_sample_size(ratio)

    assert asked.entities_per_arm == entities
    assert asked.power_ratio == pytest.approx(0.508, abs=5e-4)
    assert asked.two_sample_entities_per_arm == TWO_SAMPLE[ratio]
    assert "one-sample" in asked.sentence
    assert "50.8 %" in asked.sentence
    assert f"{TWO_SAMPLE[ratio]:,} an arm" in asked.sentence


def test_an_effect_that_the_seeds_table_lacks_gets_the_seeds_formula():
    # ((1.959964 + 0.841621) / 0.03)² = 8,720.98
    assert reference_sample_size(0.03).entities_per_arm == 8_721


def test_shares_need_what_the_textbook_says_and_one_more_for_students_t():
    # Chow, Shao & Wang, Sample Size Calculations in Clinical Research (2008), §4.2: 0.65 against 0.85 needs 70 an arm.
    assert entities_per_arm(Effect(0.20, 0.65 * 0.35, 0.85 * 0.15)) == 71


@given(effects)
def test_the_size_is_the_smallest_with_the_power(effect):
    entities = entities_per_arm(effect)

    assert power_of(effect, entities, entities) >= POWER_RATIO
    assert entities == 2 or power_of(effect, entities - 1, entities - 1) < POWER_RATIO


@given(effects, st.integers(2, 10**6), st.integers(2, 10**6), st.integers(1, 100))
def test_a_larger_sample_never_costs_power_and_no_effect_has_alpha(effect, entities_a, entities_b, times):
    power = power_of(effect, entities_a, entities_b)

    assert power_of(effect, times * entities_a, times * entities_b) >= power - 1e-9
    assert power_of(effect._replace(difference=0.0), entities_a, entities_b) == pytest.approx(ALPHA, abs=1e-6)
    assert power_of(effect._replace(difference=-effect.difference), entities_a, entities_b) == power


@given(st.floats(0, 1), st.integers(2, 10**6), st.sampled_from([0.2, 0.05, 0.01, 0.001, 0.0001]))
@example(difference=0.0255 * 2**0.5, entities=10_000, alpha=0.001)
def test_a_power_is_a_number_from_alpha_to_one(difference, entities, alpha):
    assert alpha - 1e-6 <= power_of(Effect(difference, 1.0, 1.0), entities, entities, alpha) <= 1 + 1e-9


def test_values_that_do_not_vary_show_any_difference_at_once_and_single_entities_show_none():
    assert power_of(Effect(0.1, 0.0, 0.0), 2, 2) == 1.0
    assert power_of(Effect(0.0, 0.0, 0.0), 2, 2) == 0.0
    assert power_of(Effect(5.0, 1.0, 1.0), 1, 1_000) == 0.0


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: entities_per_arm(relative_change(0.0)), "difference of zero"),
        (lambda: entities_per_arm(relative_change(0.1), power_ratio=1.0), "between alpha"),
        (lambda: look_boundaries(()), "increasing fractions"),
        (lambda: look_boundaries((0.5, 0.5)), "increasing fractions"),
        (lambda: look_boundaries((0.5, 1.1)), "increasing fractions"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_words(asked, words):
    with pytest.raises(ValueError, match=words):
        asked()


def test_the_difference_that_a_sample_sees_is_the_one_it_was_planned_for():
    effect = Effect(0.005, 0.041 * 0.959, 0.046 * 0.954)
    entities = entities_per_arm(effect)

    error = ((effect.variance_a + effect.variance_b) / entities) ** 0.5

    assert detectable_difference(error, 2 * entities - 2) == pytest.approx(effect.difference, rel=1e-4)


def test_the_forecast_is_the_first_day_with_the_power():
    effect, now, daily = Effect(0.005, 0.041 * 0.959, 0.046 * 0.954), (41_290, 4_604), (3_000, 2_000)

    forecast = when_known(effect, "a 0.5-point change", now, daily)

    assert forecast.days is not None
    powers = [
        power_of(effect, now[0] + days * daily[0], now[1] + days * daily[1])
        for days in (forecast.days - 1, forecast.days)
    ]
    assert powers[0] < POWER_RATIO <= powers[1]
    assert forecast.sentence == (
        f"At today's traffic B needs {forecast.days} more days to see a 0.5-point change (80 % power)."
    )


def test_a_test_with_looks_takes_longer_to_be_known():
    effect, now, daily = relative_change(0.05), (0.0, 0.0), (10.0, 10.0)

    one = when_known(effect, "5 %", now, daily).days
    five = when_known(effect, "5 %", now, daily, sample_inflation_ratio(FIVE_LOOKS)).days

    assert (one, five) == (629, 644)


@pytest.mark.parametrize(
    ("now", "daily", "days", "words"),
    [
        ((6_281, 6_281), (0, 0), 0, "enough entities"),
        ((6_281, 10), (0, 0), None, "No traffic"),
        ((6_281, 10), (500, 0), None, "too little"),
        ((6_280, 6_280), (1, 1), 1, "1 more day to"),
    ],
)
def test_a_forecast_says_known_now_or_no_traffic_or_too_little(now, daily, days, words):
    forecast = when_known(relative_change(0.05), "5 %", now, daily)

    assert forecast.days == days
    assert words in forecast.sentence


def test_the_boundaries_are_the_published_ones():
    # Five equal looks, two-sided 5 %: Reboussin, DeMets, Kim & Lan (2000), and the R package ldbounds' vignette; two
    # looks: R package gsDesign, sfLDOF. The programs round their grids, so the fourth decimal differs by one.
    assert look_boundaries(FIVE_LOOKS) == pytest.approx((4.8769, 3.3569, 2.6803, 2.2898, 2.0310), abs=2e-4)
    assert look_boundaries((0.5, 1.0)) == pytest.approx((2.9626, 1.9686), abs=1e-4)


@given(st.sampled_from([0.01, 0.05, 0.1]))
def test_one_look_has_the_fixed_boundary_and_needs_no_larger_sample(alpha):
    assert look_boundaries((1.0,), alpha) == pytest.approx((normal_quantile(1 - alpha / 2),))
    assert sample_inflation_ratio((1.0,), alpha) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.deep
@settings(max_examples=20, deadline=None)
@given(look_plans)
def test_looking_more_often_widens_the_last_boundary_and_never_below_the_fixed_one(looks):
    boundaries = look_boundaries(looks)

    assert boundaries[-1] >= normal_quantile(1 - ALPHA / 2) - 1e-6
    assert boundaries[-1] <= normal_quantile(1 - ALPHA / 4) + 1e-6
    assert boundaries[0] == pytest.approx(-normal_quantile(spent_alpha(looks[0]) / 2))


@pytest.mark.parametrize("looks", [FIVE_LOOKS, (0.5, 1.0), (0.1, 0.9, 1.0)])
def test_looks_of_this_kind_cost_a_few_percent_of_the_sample(looks):
    # Jennison & Turnbull (2000), §2.3: 1.028 for O'Brien and Fleming's own five; spending costs no more.
    assert 1.0 < sample_inflation_ratio(looks) <= 1.028


@pytest.mark.deep
@settings(max_examples=20, deadline=None)
@given(look_plans)
def test_a_look_that_was_taken_keeps_its_boundary_whatever_comes_later(looks):
    assert look_boundaries(looks)[:-1] == pytest.approx(look_boundaries((*looks[:-1], 0.999))[:-1], abs=1e-6)


def test_all_alpha_is_spent_at_the_end():
    assert spent_alpha(1.0) == pytest.approx(ALPHA)


@given(st.floats(1e-6, 100))
def test_an_interval_that_always_holds_is_wider_than_any_fixed_one(fraction):
    assert always_valid_boundary(fraction) >= always_valid_boundary(1.0) - 0.01
    assert always_valid_boundary(1.0) == pytest.approx(1.549 * normal_quantile(1 - ALPHA / 2), abs=1e-3)


@pytest.mark.alone
@pytest.mark.deep
def test_twenty_looks_cost_less_than_three_seconds_however_close_they_are():
    looks = [place for tenth in range(1, 11) for place in (tenth / 10 - 1e-9, tenth / 10)]
    began = time.process_time()

    look_boundaries(looks)

    assert time.process_time() - began < 3


@given(st.integers(1, 20))
def test_looks_are_at_equal_steps_and_the_last_one_has_the_whole_sample(looks):
    fractions = look_fractions(looks)

    assert len(fractions) == looks
    assert fractions[-1] == 1.0
    assert fractions[0] == pytest.approx(1 / looks)
