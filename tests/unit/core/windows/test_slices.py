"""What windows count of slices, from rows of the spool."""

from collections.abc import Sequence
from math import floor, log
from typing import Any

import pytest
from traffic.spooled_rows import a_row

from understudy.core.canary.slices.slice_tally import slice_units
from understudy.core.prediction_log.call_slices import ROUTED, Slice
from understudy.core.prediction_log.row import COLUMNS, PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason
from understudy.core.windows.builder import WindowBuilder
from understudy.core.windows.slices import MAX_VALUES, SliceColumn
from understudy.core.windows.window import Window, window_from_json, window_to_json

GOLD, SILVER = Slice("category", "gold"), Slice("category", "silver")
SLOW_US = 10_000


def a_call(category: str = "gold", entity: str = "ada", **changes: Any) -> PredictionRow:
    text = b'{"category":"%b"}' % category.encode()
    row = a_row()._replace(entity_id=entity, rollout_id=7, latency_us=5_000, slices=text)
    return row._replace(**changes)


def built(
    rows: Sequence[PredictionRow], columns: Sequence[str] = COLUMNS, builder: WindowBuilder | None = None
) -> tuple[Window, ...]:
    builder = builder or WindowBuilder("shipper-1")
    staged = builder.stage([encode_line(row) for row in rows], columns, lambda _: SLOW_US)
    builder.commit(staged)
    assert staged.unreadable_rows == 0
    return staged.windows


def totals(window: Window) -> dict[Slice, list[int]]:
    return {one: counted.sum(axis=0).tolist() for one, counted in window.slices.items()}


def test_each_slice_has_its_calls_errors_slow_answers_and_latencies():
    slow = a_call(latency_us=11_000)
    failed = a_call(status=Status.UNAVAILABLE, error_code="E503", latency_us=99_000)

    (window,) = built([a_call(), slow, failed, a_call("silver"), a_call(slices=None)])

    micros = sum(floor(log(latency) * 1e6) for latency in (5_000, 11_000))
    assert totals(window) == {GOLD: [3, 1, 1, micros], SILVER: [1, 0, 0, floor(log(5_000) * 1e6)]}
    assert window.calls == 5


def test_a_challenger_is_slow_from_a_higher_threshold_on():
    challenger: dict[str, Any] = {"model_version_id": 2, "assigned_version_id": 2, "role": Role.CHALLENGER}

    (window,) = built([a_call(latency_us=11_000, **challenger), a_call(latency_us=12_001, **challenger)])

    assert totals(window)[GOLD][SliceColumn.SLOW] == 1


def test_a_call_that_the_champion_failed_as_well_counts_in_no_slice():
    in_its_place: dict[str, Any] = {"assigned_version_id": 2, "error_code": "E503"}
    shared = a_call(status=Status.UNAVAILABLE, **in_its_place)
    answered = a_call(status=Status.FALLBACK, **in_its_place)

    (window,) = built([shared, shared, answered])

    assert totals(window)[GOLD][:2] == [1, 1]
    assert window.errors == 3


def test_entities_fall_into_groups():
    (window,) = built([a_call(entity=f"user-{number}") for number in range(400)])

    assert (window.slices[GOLD][:, SliceColumn.CALLS] > 5).all()


def test_two_batches_add_up_to_what_one_counts():
    rows = [a_call(), a_call("silver", "bob"), a_call(entity="eve", latency_us=20_000)]
    builder = WindowBuilder("shipper-1")
    built(rows[:1], builder=builder)

    assert [window_to_json(one) for one in built(rows[1:], builder=builder)] == [window_to_json(built(rows)[0])]


def test_calls_that_are_not_compared_count_in_no_slice():
    (window,) = built([a_call(cache_hit=True), a_call(reason=Reason.FORCED)])

    assert window.slices == {}


def test_a_call_that_its_category_routed_counts_in_the_slice_of_its_route_and_nowhere_else():
    routed = a_call(reason=Reason.CATEGORY, slices=b'{"category":"gold","country":"DE"}')
    failed = routed._replace(status=Status.FALLBACK, assigned_version_id=2, error_code="E503", model_version_id=1)

    challenger, champion = sorted(built([routed, routed, failed, a_call("silver")]), key=lambda one: one.key.role)

    route = Slice(ROUTED, "gold")
    assert totals(champion) == {route: [2, 0, 0, 2 * floor(log(5_000) * 1e6)], SILVER: totals(champion)[SILVER]}
    assert (champion.calls, champion.volume, champion.new_entities) == (1, 3, 1)
    assert totals(challenger) == {route: [1, 1, 0, 0]}
    assert (challenger.calls, challenger.errors, challenger.volume) == (0, 0, 1)
    assert window_from_json(challenger.key, window_to_json(challenger)).slices.keys() == {route}


def test_a_routed_call_without_a_category_outside_of_a_rollout_or_that_the_champion_failed_as_well_counts_nowhere():
    both = a_call(reason=Reason.CATEGORY, status=Status.UNAVAILABLE, assigned_version_id=2, error_code="E503")
    others = [a_call(reason=Reason.CATEGORY, slices=b'{"country":"DE"}'), a_call(reason=Reason.CATEGORY, slices=None)]

    windows = [*built([both, *others]), *built([a_call(reason=Reason.CATEGORY, rollout_id=None)])]

    assert all(window.slices == {} for window in windows)


def test_calls_outside_of_a_rollout_count_in_no_slice():
    (window,) = built([a_call(rollout_id=None)])

    assert window.slices == {}


def test_more_values_than_are_told_apart_are_other():
    (window,) = built([a_call(f"c{number}") for number in range(MAX_VALUES + 9)])

    assert len(window.slices) == MAX_VALUES + 1
    assert totals(window)[Slice("category", "other")][SliceColumn.CALLS] == 9


def test_rows_of_a_release_before_have_none():
    columns = tuple(name for name in COLUMNS if name != "slices")
    place = COLUMNS.index("slices")
    lines = [encode_line(a_call()).split(b"\t")]
    staged = WindowBuilder("shipper-1").stage(
        [b"\t".join(line[:place] + line[place + 1 :]) for line in lines], columns, lambda _: SLOW_US
    )

    assert [(one.calls, one.slices) for one in staged.windows] == [(1, {})]


def test_json_gives_back_what_was_written_and_windows_add_up():
    (window,) = built([a_call(), a_call("silver", "bob")])
    again = window_from_json(window.key, window_to_json(window))

    assert window_to_json(again) == window_to_json(window)
    (unit,) = slice_units([window, again], 7)
    assert {one: counted[:, SliceColumn.CALLS].sum() for one, counted in unit.slices[0].items()} == {GOLD: 2, SILVER: 2}


@pytest.mark.parametrize(
    "row",
    [
        ["a", 1, 0, 1, 0, 0, 0],
        ["a", "b", 16, 1, 0, 0, 0],
        ["a", "b", -1, 1, 0, 0, 0],
        ["a", "b", 0, 1, -1, 0, 0],
        ["a", "b", 0, 1, 0, 0, 10**9],
        ["a", "b", 0, 1.5, 0, 0, 0],
        ["a", "b", 0, 1],
        ["a"],
        1,
    ],
)
def test_counts_that_no_calls_can_have_are_refused(row):
    key = built([a_call()])[0].key

    with pytest.raises(ValueError, match="not a window"):
        window_from_json(key, b'{"slices": [%b]}' % str(row).replace("'", '"').encode())
