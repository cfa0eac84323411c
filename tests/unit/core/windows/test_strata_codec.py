from base64 import b64decode, b85encode
from typing import Any
from zlib import compress, decompress

import numpy as np
import pytest
from numpy.typing import NDArray
from traffic.spooled_rows import a_row, no_threshold

from understudy.core.prediction_log.row import COLUMNS, Status
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.routing.policy import Role
from understudy.core.windows.builder import WindowBuilder
from understudy.core.windows.strata import Side, Strata, join_strata, stratify
from understudy.core.windows.strata_codec import strata_digest, strata_from_text, strata_to_text


def some_strata(calls: int) -> Strata:
    builder = WindowBuilder("here")
    rows = [
        encode_line(
            a_row(number)._replace(
                rollout_id=7,
                predicted_at=1_763_661_000 + number / 3,
                role=Role.CHALLENGER if number % 5 == 0 else Role.CHAMPION,
                status=Status.TIMEOUT if number % 11 == 0 else Status.OK,
                score=number / 97,
            )
        )
        for number in range(calls)
    ]
    return stratify(builder.stage(rows, COLUMNS, no_threshold).windows, 7)


def arrays_of(strata: Strata) -> list[NDArray[Any]]:
    sides = (strata.champion, strata.challenger)
    return [strata.starts, *(part for side in sides for part in (side.sums, side.buckets)), *strata.arrivals[1:]]


@pytest.mark.parametrize("calls", [0, 1, 500])
def test_strata_come_back_to_the_last_bit(calls):
    strata = some_strata(calls)

    found = strata_from_text(strata_to_text(strata))

    assert all(np.array_equal(*pair) for pair in zip(arrays_of(found), arrays_of(strata), strict=True))
    assert found.arrivals.shippers == strata.arrivals.shippers


def test_strata_that_an_earlier_release_stored_can_still_be_read():
    strata = some_strata(500)
    packed = decompress(b64decode(strata_to_text(strata).removeprefix("b64:")))

    found = strata_from_text(b85encode(compress(packed)).decode())

    assert all(np.array_equal(*pair) for pair in zip(arrays_of(found), arrays_of(strata), strict=True))


def test_a_digest_tells_strata_apart_and_stays_with_equal_ones():
    one, same, other = some_strata(500), some_strata(500), some_strata(499)

    assert strata_digest(one) == strata_digest(same) != strata_digest(other)


def test_a_further_arms_rows_are_in_no_rollouts_windows():
    rows = [
        a_row(number, version_id=version)._replace(
            rollout_id=rollout_id, predicted_at=1_763_661_000.0, role=Role.CHALLENGER if version > 1 else Role.CHAMPION
        )
        for version, rollout_id in ((1, 7), (2, 7), (9, None))
        for number in range(20)
    ]
    windows = WindowBuilder("here").stage([encode_line(row) for row in rows], COLUMNS, no_threshold).windows

    strata = stratify(windows, 7)

    assert {window.key.model_version_id for window in windows} == {1, 2, 9}
    assert (strata.champion["calls"].sum(), strata.challenger["calls"].sum()) == (20, 20)


@pytest.mark.parametrize("text", ["", "x", 'not base 85: "', "b64:x", "b64:eJw=", strata_to_text(some_strata(1))[:-5]])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="not stored strata"):
        strata_from_text(text)


def test_strata_of_a_release_before_callers_deadlines_have_none_that_were_left_out():
    strata = some_strata(500)
    champion, challenger = (
        Side(side.sums[:, :11], side.buckets, side.tails) for side in (strata.champion, strata.challenger)
    )
    before = Strata(strata.starts, champion, challenger, strata.arrivals)

    found = strata_from_text(strata_to_text(before))

    assert found.challenger["hurried_calls"].sum() == 0
    assert all(np.array_equal(*pair) for pair in zip(arrays_of(found), arrays_of(strata), strict=True))


def test_errors_that_the_champion_had_as_well_come_back_where_they_were_and_stay_there_when_strata_are_joined():
    rows = [
        a_row(number, version_id=1)._replace(
            assigned_version_id=2, rollout_id=7, predicted_at=1_763_661_000.0 + 20 * number, status=Status.TIMEOUT
        )
        for number in range(5)
    ]
    encoded = [encode_line(row) for row in rows]
    windows = WindowBuilder("here").stage(encoded, COLUMNS, no_threshold).windows
    whole = stratify(windows, 7)

    found = strata_from_text(strata_to_text(whole))
    joined = join_strata([stratify(windows[:2], 7), stratify(windows[2:], 7)])
    doubled = join_strata([whole, whole])

    expected = whole.challenger.bucket_shared
    assert (expected.sum(), whole.challenger["shared_error_entities"].sum()) == (5, 5)
    assert np.array_equal(found.challenger.bucket_shared, expected)
    assert np.array_equal(joined.challenger.bucket_shared, expected)
    assert np.array_equal(doubled.challenger.bucket_shared, 2 * expected)
    assert np.array_equal(whole.challenger.cut(1, 3).bucket_shared, expected[1:3])
    assert not len(whole.champion.shared)
