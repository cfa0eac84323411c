from math import isnan, nan, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from understudy.core.experiments.shadow_comparison import (
    DROPPED,
    Disagreement,
    ShadowPairs,
    ShadowState,
    compare_shadow,
)

scores = st.floats(0, 1)
some_pairs = st.lists(st.tuples(scores, scores), min_size=1, max_size=60)
words = st.sampled_from(["ok", "fallback", "timeout", "unavailable", "bad_answer", "error", DROPPED])
maybe = st.none() | st.floats(-3, 3)
raw_pairs = st.lists(st.tuples(st.integers(0, 5), words, words, maybe, maybe, maybe, maybe), max_size=30)


def pairs_of(
    champion: list[float], shadow: list[float], entities: list[int] | None = None, **changes: list[str] | list[float]
) -> ShadowPairs:
    count = len(champion)
    columns = {
        "champion_statuses": ["ok"] * count,
        "shadow_statuses": ["ok"] * count,
        "champion_seconds": [0.010] * count,
        "shadow_seconds": [0.012] * count,
        **changes,
    }
    return ShadowPairs(
        np.array([f"p{place:03}" for place in range(count)]),
        np.array(list(range(count)) if entities is None else entities, dtype=np.int64),
        np.array(columns["champion_statuses"], dtype=np.str_),
        np.array(columns["shadow_statuses"], dtype=np.str_),
        np.array(columns["champion_seconds"], dtype=np.float64),
        np.array(columns["shadow_seconds"], dtype=np.float64),
        np.array(champion, dtype=np.float64),
        np.array(shadow, dtype=np.float64),
    )


def test_without_pairs_the_report_says_so_and_compares_nothing():
    report = compare_shadow(pairs_of([], []))

    assert (report.state, report.pairs) == (ShadowState.NO_PAIRS, 0)
    assert report.sentence.startswith("No pairs")
    assert report[3:] == (None, None, None, None, ())
    assert report.error_change_points is None


def test_a_shadow_that_never_answers_leaves_its_fates_and_no_scores():
    report = compare_shadow(
        pairs_of(
            [0.2, 0.4],
            [nan, nan],
            shadow_statuses=["timeout", DROPPED],
            shadow_seconds=[nan, nan],
        )
    )

    assert report.state is ShadowState.NO_SCORES
    assert report.shadow == (0.0, 50.0, 50.0, None)
    assert (report.scores, report.latency, report.error_change_points) == (None, None, None)
    assert "50.00 % of the shadow's calls timed out, 50.00 % were dropped" in report.sentence


def test_fates_are_percentages_of_the_pairs_and_errors_of_the_calls_that_ended():
    shadow = ["ok"] * 90 + ["timeout"] * 5 + [DROPPED] * 3 + ["unavailable", "bad_answer"]
    champion = ["ok"] * 95 + ["fallback"] * 4 + ["error"]

    report = compare_shadow(pairs_of([0.5] * 100, [0.5] * 100, champion_statuses=champion, shadow_statuses=shadow))

    assert report.champion == (99.0, 0.0, 0.0, 1.0)
    assert report.shadow == pytest.approx((90.0, 5.0, 3.0, 100 * 2 / 92))
    assert report.shadow is not None
    assert report.shadow.failed_percent == pytest.approx(100 * 7 / 97)
    assert report.error_change_points == pytest.approx(100 * 2 / 92 - 1)


def test_latencies_are_of_the_pairs_that_have_both():
    report = compare_shadow(
        pairs_of(
            [0.5] * 4, [0.5] * 4, champion_seconds=[0.010, 0.020, nan, 9.0], shadow_seconds=[0.011, 0.024, 5.0, nan]
        )
    )

    assert report.latency is not None
    assert report.latency.pairs == 2
    assert report.latency.champion_p50_seconds == pytest.approx(0.015)
    assert report.latency.p50_change_percent == pytest.approx(100 * (0.0175 / 0.015 - 1))
    assert report.latency.p99_change_percent == pytest.approx(100 * (0.02387 / 0.0199 - 1))


@pytest.mark.deep
@settings(max_examples=40)
@given(some_pairs, scores)
def test_agreement_ranks_and_distance_are_the_textbooks(pairs, threshold):
    champion, shadow = map(list, zip(*pairs, strict=True))

    found = compare_shadow(pairs_of(champion, shadow), threshold).scores

    assert found is not None
    yes = [(c >= threshold, s >= threshold) for c, s in pairs]
    same = sum(c == s for c, s in yes) / len(yes)
    chance = sum(np.mean([c == v for c, _ in yes]) * np.mean([s == v for _, s in yes]) for v in (True, False))
    assert found.same_decision_percent == pytest.approx(100 * same)
    assert found.cohens_kappa == (pytest.approx((same - chance) / (1 - chance)) if chance < 1 else None)
    assert found.ks == pytest.approx(
        max(abs(np.mean(np.array(champion) <= x) - np.mean(np.array(shadow) <= x)) for x in champion + shadow)
    )
    if len(set(champion)) > 1 and len(set(shadow)) > 1:
        assert found.spearman == pytest.approx(stats.spearmanr(champion, shadow).statistic)
    else:
        assert found.spearman is None


@settings(max_examples=30)
@given(st.lists(scores, min_size=1, max_size=60))
def test_a_shadow_that_answers_the_same_agrees_in_everything(same):
    found = compare_shadow(pairs_of(same, same)).scores

    assert found is not None
    assert (found.same_decision_percent, found.psi, found.ks) == (100.0, 0.0, 0.0)
    assert found.champion_cells == found.shadow_cells
    assert sum(found.champion_cells) == len(same)
    assert found.spearman is None or found.spearman == pytest.approx(1.0)


@pytest.mark.parametrize(("count", "moved_by", "is_asked"), [(50, 0.0, True), (49, 0.0, False), (50, 2**-53, False)])
def test_scores_that_are_all_the_same_to_the_last_bit_are_asked_about(count, moved_by, is_asked):
    champion = [0.5 + place / 200 for place in range(count)]

    sentence = compare_shadow(pairs_of(champion, [0.5 - moved_by, *champion[1:]])).sentence

    assert sentence.endswith("same to the last bit: is the shadow really another model?") is is_asked


def test_psi_is_the_sum_over_the_champions_tenths():
    champion, shadow = [place / 100 for place in range(100)], [place / 200 for place in range(100)]

    found = compare_shadow(pairs_of(champion, shadow)).scores

    # The champion's borders are 0.099, 0.198, … 0.891; 0.495 is one and belongs above. Half a score more in each cell.
    of_champion = (np.full(10, 10) + 0.5) / 105
    of_shadow = (np.array([20, 20, 20, 20, 19, 1, 0, 0, 0, 0]) + 0.5) / 105
    assert found is not None
    assert found.psi == pytest.approx(float(((of_shadow - of_champion) * np.log(of_shadow / of_champion)).sum()))


def test_the_interval_of_the_difference_counts_entities_and_not_their_requests():
    rng = np.random.default_rng(1)
    by_entity = rng.normal(0.01, 0.02, 50)
    champion = rng.uniform(0.2, 0.8, 500)
    shadow = champion + np.repeat(by_entity, 10)

    found = compare_shadow(pairs_of(champion.tolist(), shadow.tolist(), np.repeat(np.arange(50), 10).tolist())).scores

    assert found is not None
    low, high = stats.ttest_1samp(by_entity, 0).confidence_interval(0.95)
    assert (found.difference_low, found.difference_high) == pytest.approx((low, high), rel=1e-6)
    assert (found.difference_high - found.difference_low) / 2 == pytest.approx(
        2.01 * by_entity.std(ddof=1) / sqrt(50), rel=1e-3
    )


def test_one_entity_alone_has_no_interval():
    found = compare_shadow(pairs_of([0.1, 0.2], [0.2, 0.2], [7, 7])).scores

    assert found is not None
    assert isnan(found.difference_low)
    assert isnan(found.difference_high)


def test_the_largest_disagreements_come_first_and_the_earlier_of_equal_ones():
    report = compare_shadow(pairs_of([0.5, 0.5, nan, 0.9, 0.5], [0.75, 0.5, 0.1, 0.1, 0.25]), top=3)

    assert report.disagreements == (
        Disagreement("p003", 0.9, 0.1),
        Disagreement("p000", 0.5, 0.75),
        Disagreement("p004", 0.5, 0.25),
    )


def test_scores_beyond_zero_and_one_have_cells_of_their_own_range():
    found = compare_shadow(pairs_of([-5.0, 0.0, 5.0], [0.0, 5.0, 15.0])).scores

    assert found is not None
    assert (found.edges[0], found.edges[-1], len(found.edges)) == (-5.0, 15.0, 11)
    assert (sum(found.champion_cells), sum(found.shadow_cells)) == (3, 3)


def test_the_sentence_says_how_often_both_decide_the_same():
    report = compare_shadow(pairs_of([0.1, 0.6, 0.7, 0.2], [0.2, 0.4, 0.8, 0.1]))

    assert report.sentence == (
        "The same decision at 0.5 in 75.0 % of 4 pairs; 0.00 % of the shadow's calls timed out, 0.00 % were dropped."
    )


def test_a_shadow_that_fails_noticeably_is_said_first_and_failed_calls_agree_with_nobody():
    shadow_statuses = ["ok"] * 6 + ["error", "bad_answer", "timeout", DROPPED]
    champion = [0.9] * 10

    report = compare_shadow(pairs_of(champion, champion, shadow_statuses=shadow_statuses))

    assert report.sentence == (
        "The shadow failed 33.3 % of its calls. Of the others: the same decision at 0.5 in 100.0 % of 6 pairs."
    )
    assert report.scores is not None
    assert report.scores.pairs == 6


def test_a_shadow_all_of_whose_calls_were_dropped_has_failed_none():
    report = compare_shadow(pairs_of([0.9] * 3, [nan] * 3, shadow_statuses=[DROPPED] * 3))

    assert report.shadow is not None
    assert report.shadow.failed_percent == 0
    assert report.state is ShadowState.NO_SCORES


def test_scores_that_are_no_probabilities_are_compared_as_numbers_unless_a_threshold_is_chosen():
    pairs = pairs_of([10.0, 20.0, 30.0], [11.0, 22.0, 24.0])

    as_numbers, with_threshold = compare_shadow(pairs), compare_shadow(pairs, 21.0)

    assert as_numbers.sentence == (
        "The shadow's score differs by \N{MINUS SIGN}1 on average (champion 20, shadow 19), by 6 at most, in 3 pairs; "
        "0.00 % of the shadow's calls timed out, 0.00 % were dropped."
    )
    assert with_threshold.sentence.startswith("The same decision at 21 in 66.7 % of 3 pairs")


@pytest.mark.deep
@settings(max_examples=60)
@given(raw_pairs)
def test_no_mixture_of_fates_and_missing_values_is_an_exception(rows):
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(7)]
    entities, statuses, shadow_statuses, *numbers = columns
    seconds, shadow_seconds, champion, shadow = ([nan if n is None else n for n in column] for column in numbers)

    report = compare_shadow(
        pairs_of(
            champion,
            shadow,
            entities,
            champion_statuses=statuses,
            shadow_statuses=shadow_statuses,
            champion_seconds=[abs(value) for value in seconds],
            shadow_seconds=[abs(value) for value in shadow_seconds],
        )
    )

    assert (report.state is ShadowState.NO_PAIRS) == (not rows)
    assert (report.scores is not None) == (report.state is ShadowState.COMPARED)
