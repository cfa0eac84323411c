"""What is said of features whose served values are compared with stored ones."""

from collections.abc import Sequence

import numpy as np
import pytest

from understudy.core.drift.hours import HOUR_SECONDS, hour_from_json, hour_to_json
from understudy.core.drift.skew.judgement import FeatureSkew, judge_skew, judge_skews
from understudy.core.drift.skew.pairs import Match, Pair
from understudy.core.drift.skew.tally import skew_windows, together
from understudy.core.drift.subject_window import SubjectWindow, skew_subject
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS

CALLS = 1_000


def hours(match: Match, ratio: float, *, skewed_from: int = 0, number: int = 3) -> list[SubjectWindow]:
    """Return hours in which so large a share of calls compare in a way, from one hour on."""
    random = np.random.default_rng(7)
    made = []
    for hour in range(number):
        share = ratio if hour >= skewed_from else 0.0
        buckets, hits = random.integers(0, ANALYSIS_BUCKETS, CALLS).tolist(), random.random(CALLS) < share
        times = 0.01 if match is Match.DIFFERS else None
        pairs = [Pair("amount", match, times) if hit else Pair("amount", Match.SAME) for hit in hits.tolist()]
        made.append(skew_windows(hour * HOUR_SECONDS, zip(buckets, pairs, strict=True))["amount"])
    return made


def judged(windows: Sequence[SubjectWindow]) -> FeatureSkew:
    return judge_skew("amount", windows, len(windows) * HOUR_SECONDS)


def test_another_unit_is_named_within_an_hour_with_what_it_is_multiplied_by():
    found = judged(hours(Match.DIFFERS, 1.0, number=1))

    assert found.is_skewed
    assert found.ratio == pytest.approx(0.01, rel=0.01)
    assert found.words == "amount: another value in 100 % (0.01 times it) of 1,000 calls (limit 3 %)."


def test_a_tenth_without_a_value_is_named_and_since_when():
    found = judged(hours(Match.MISSING, 0.1, skewed_from=2))

    assert found.is_skewed
    assert found.drift.since_seconds == 2 * HOUR_SECONDS
    assert found.calls == CALLS
    assert found.words.startswith("amount: no value in")


@pytest.mark.parametrize("ratio", [0.0, 0.015])
def test_a_share_within_the_limit_is_named_by_no_number_of_calls(ratio):
    found = judged(hours(Match.DIFFERS, ratio, number=60))

    assert not found.is_skewed
    assert found.skewed_ratio == pytest.approx(ratio, abs=0.01)


def test_a_few_calls_say_nothing_yet():
    windows = skew_windows(0.0, [(place, Pair("amount", Match.MISSING)) for place in range(60)])

    found = judge_skew("amount", [windows["amount"]], HOUR_SECONDS)

    assert not found.is_skewed
    assert found.drift.words.startswith("amount: too early, 60 rows")


def test_the_parts_of_an_hour_add_up_and_are_stored_as_they_are():
    one, other = (hours(match, 0.4, number=1)[0] for match in (Match.DIFFERS, Match.MISSING))

    whole = together(one, other)

    assert sum(whole.bucket_rows) == 2 * CALLS
    assert {name: sum(rows) for name, rows in whole.categories.items()} == {
        match: sum(sum(part.categories.get(match, ())) for part in (one, other)) for match in Match
    }
    assert hour_from_json(0.0, hour_to_json(whole)) == whole._replace(bucket_sums=())


def test_skews_are_told_by_feature_and_other_subjects_left_alone():
    windows = hours(Match.DIFFERS, 1.0, number=1)

    found = judge_skews({skew_subject("b"): windows, "amount": windows, skew_subject("a"): windows}, HOUR_SECONDS)

    assert [skew.feature for skew in found] == ["a", "b"]
