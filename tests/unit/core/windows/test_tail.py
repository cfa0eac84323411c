from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.strata import join_strata, stratify
from understudy.core.windows.strata_codec import strata_from_text, strata_to_text
from understudy.core.windows.tail import STEP_RATIO, no_tails, tail_cells, tail_entries, tail_step_of
from understudy.core.windows.window import TAIL_STEPS, Window, WindowKey, window_from_json, window_to_json

SLOW_US = 10_000.0
KEY = WindowKey("worker-1", 0, 1, Role.CHALLENGER, 7, 3, 0)


def cells(*latency_us: float, bucket: int = 0) -> list[int]:
    found: list[int] = tail_cells(np.full(len(latency_us), bucket), np.array(latency_us), SLOW_US).tolist()
    return found


def a_window(start: int = 0, tails: dict[int, int] | None = None) -> Window:
    return Window(KEY._replace(start=start), calls=100, tails=Histogram(tails or {}))


@given(st.floats(1.21, 1_000), st.integers(0, 63))
def test_an_answer_is_beyond_its_steps_threshold_and_not_beyond_the_next(ratio, bucket):
    (cell,) = cells(ratio * SLOW_US, bucket=bucket)

    place, step = divmod(cell, TAIL_STEPS)
    assert place == bucket
    assert STEP_RATIO ** (step + 1) <= ratio * (1 + 1e-9)
    assert step == TAIL_STEPS - 1 or ratio <= STEP_RATIO ** (step + 2) * (1 + 1e-9)


def test_the_last_cell_has_whatever_is_further():
    assert cells(12_001, 14_401, 1e9) == [0, 1, TAIL_STEPS - 1]


@pytest.mark.parametrize(
    ("value_us", "step"), [(14_400, 2), (20_000, 4), (9_000, 1), (STEP_RATIO**15 * SLOW_US, 15), (1e9, None), (0, None)]
)
def test_a_percentile_is_at_the_nearest_step_that_leaves_one_beyond_it(value_us, step):
    assert tail_step_of(value_us, SLOW_US) == step


def test_tails_are_json_and_a_release_before_wrote_none_and_reads_past_them():
    window = a_window(tails={5: 3, 17: 1})

    text = window_to_json(window)

    assert '"tails":[5,3,17,1]' in text
    assert window_from_json(KEY, text).tails == window.tails
    assert window_from_json(KEY, '{"calls":100}').tails == Histogram()
    assert '"tails"' not in window_to_json(a_window())


def test_tails_of_several_shippers_add_up_and_strata_keep_them_by_window():
    windows = [a_window(0, {0: 2, 16: 1}), a_window(15, {0: 1})]
    others = [replace(window, key=window.key._replace(shipper="worker-2")) for window in windows]

    strata = stratify([*windows, *others], 7)
    joined = join_strata([stratify(windows, 7), stratify(others, 7)])

    for found in (strata, joined):
        assert found.challenger.beyond(1).sum(axis=1).tolist() == [6.0, 2.0]
        assert found.challenger.beyond(1)[0, :2].tolist() == [4.0, 2.0]
        assert found.challenger.beyond(2).sum() == 0
        assert found.between(15, 30).challenger.beyond(1).sum() == 2


def test_strata_are_stored_with_their_tails_and_those_of_releases_before_have_none():
    strata = stratify([a_window(0, {0: 2})], 7)
    bare = replace(
        strata,
        champion=replace(strata.champion, tails=no_tails()),
        challenger=replace(strata.challenger, tails=no_tails()),
    )

    read, earlier = (strata_from_text(strata_to_text(one)) for one in (strata, bare))

    assert np.array_equal(read.challenger.tails, strata.challenger.tails)
    assert earlier.challenger.beyond(1).tolist() == np.zeros((1, 64)).tolist()
    assert np.array_equal(earlier.challenger.buckets, strata.challenger.buckets)
    assert join_strata([earlier, stratify([a_window(15, {3: 1})], 7)]).challenger.beyond(1).sum() == 1


def test_windows_without_slow_answers_have_no_entries():
    assert tail_entries([a_window(), a_window(15)]).shape == (0, 3)
    assert tail_entries([a_window(), a_window(15, {17: 2})]).tolist() == [[1, 17, 2]]


@given(
    st.lists(st.dictionaries(st.integers(0, 64 * TAIL_STEPS - 1), st.integers(1, 50), max_size=5), max_size=8),
    st.integers(1, TAIL_STEPS),
)
def test_what_is_beyond_a_step_in_all_buckets_together_is_the_sum_over_the_buckets(tails, step):
    side = stratify([a_window(15 * place, own) for place, own in enumerate(tails)], 7).challenger

    assert side.count_beyond(step).tolist() == side.beyond(step).sum(axis=1).tolist()
