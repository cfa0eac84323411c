from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from traffic.spooled_rows import a_row, records_of

from understudy.core.prediction_log.analysis_hash import analysis_hash
from understudy.core.prediction_log.row import COLUMNS, PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason
from understudy.core.windows.accumulator import MAX_WINDOW_ENTITIES
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.builder import (
    MAX_FORGOTTEN,
    MAX_NEWEST_WINDOWS,
    MAX_OPEN_ENTITIES,
    MAX_OPEN_ROLLOUTS,
    MAX_OPEN_WINDOWS,
    MAX_ROLLOUTS,
    NEWEST_STARTS,
    OPEN_SECONDS,
    WindowBuilder,
)
from understudy.core.windows.histogram import merged
from understudy.core.windows.seen_entities import SeenEntities
from understudy.core.windows.strata import Side, Strata, join_strata, stratify
from understudy.core.windows.window import (
    COUNTS,
    MICRO,
    WINDOW_SECONDS,
    BucketColumn,
    Window,
    WindowKey,
    no_buckets,
    window_from_json,
    window_to_json,
)

START = 1_763_661_000
ROLLOUT = 7
SLOW_US = 10_000
CHAMPION, CHALLENGER = 1, 2


def a_call(entity: str = "ada", **changes) -> PredictionRow:
    return a_row()._replace(entity_id=entity, predicted_at=START + 0.25, rollout_id=ROLLOUT, **changes)


def a_challenger_call(entity: str = "ada", **changes) -> PredictionRow:
    facts = {"model_version_id": CHALLENGER, "assigned_version_id": CHALLENGER, "role": Role.CHALLENGER}
    return a_call(entity, **(facts | changes))


def a_fallback(entity: str = "ada", status: Status = Status.FALLBACK) -> PredictionRow:
    """The champion stood in; ``status`` is what became of its own attempt."""
    return a_call(entity, assigned_version_id=CHALLENGER, status=status, error_code="E503")


def lines(rows: Iterable[PredictionRow]) -> list[bytes]:
    return [encode_line(row) for row in rows]


def slow_us_of(rollout_id: int) -> int | None:
    return SLOW_US if rollout_id == ROLLOUT else None


def built(rows: Sequence[PredictionRow], builder: WindowBuilder | None = None) -> tuple[Window, ...]:
    builder = builder or WindowBuilder("shipper-1")
    staged = builder.stage(lines(rows), COLUMNS, slow_us_of, records_of(rows))
    builder.commit(staged)
    assert staged.unreadable_rows == 0
    return staged.windows


def texts(windows: Iterable[Window]) -> dict[WindowKey, str]:
    return {window.key: window_to_json(window) for window in windows}


calls = st.builds(
    a_row()._replace,
    predicted_at=st.floats(START, START + 40),
    model_version_id=st.sampled_from((CHAMPION, CHALLENGER)),
    assigned_version_id=st.sampled_from((CHAMPION, CHALLENGER)),
    entity_id=st.sampled_from(("ada", "bob", "eve\t\\n\n", "zoë")),
    score=st.none() | st.floats(-2e6, 2e6) | st.just(float("inf")),
    latency_us=st.integers(0, 60_000_000),
    role=st.sampled_from(Role),
    reason=st.sampled_from(Reason),
    policy_generation=st.sampled_from((3, 4)),
    rollout_id=st.none() | st.just(ROLLOUT),
    cache_hit=st.booleans(),
    status=st.sampled_from(Status),
)


@pytest.mark.deep
@settings(max_examples=25)
@given(st.lists(calls, max_size=30))
def test_windows_hold_what_counting_the_rows_one_by_one_gives(rows):
    windows = built(rows)

    compared = [row for row in rows if row.reason is Reason.BUCKET or (row.role is Role.SHADOW and not is_forced(row))]
    compared = [row for row in compared if not (is_category(row) and stood_in(row))]
    judged = [row for row in compared if stood_in(row) or not row.cache_hit]
    answered = [row for row in judged if not stood_in(row) and row.status is Status.OK]
    assert sum(w.volume for w in windows) == sum(not is_forced(row) for row in rows)
    assert sum(w.calls for w in windows) == len(judged)
    assert sum(w.answered for w in windows) == len(answered)
    assert sum(w.latencies.total for w in windows) == len(answered)
    assert sum(w.slow_low for w in windows) == sum(r.latency_us > SLOW_US and r.rollout_id == ROLLOUT for r in answered)
    assert sum(w.log_latency for w in windows) == sum(int(log(row.latency_us or 1) * 1e6) for row in answered)
    scores = [row.score for row in answered if row.score is not None and abs(row.score) < float("inf")]
    assert sum(w.score_calls for w in windows) == sum(w.scores.total for w in windows) == len(scores)
    assert sum(w.score for w in windows) == sum(round(min(max(score, -1e6), 1e6) * 1e6) for score in scores)
    assert sum(w.positives for w in windows) == sum(score >= 0.5 for score in scores)


def is_forced(row: PredictionRow) -> bool:
    return row.reason is Reason.FORCED


def is_category(row: PredictionRow) -> bool:
    return row.reason is Reason.CATEGORY


def stood_in(row: PredictionRow) -> bool:
    return row.assigned_version_id != row.model_version_id


@settings(max_examples=25)
@given(st.lists(calls, max_size=30))
def test_the_buckets_of_a_window_add_up_to_the_window(rows):
    windows = built(rows)

    for window in windows:
        sums = dict(zip(BucketColumn, window.buckets.sum(axis=0).tolist(), strict=True))
        assert sums == {column: getattr(window, column.name.lower()) for column in BucketColumn}


@pytest.mark.deep
@settings(max_examples=25)
@given(st.lists(calls, max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_batches_of_any_size_come_to_the_same_windows(rows, cuts):
    borders = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]

    builder = WindowBuilder("shipper-1")
    states: dict[WindowKey, str] = {}
    for start, end in pairwise(borders):
        states |= texts(built(rows[start:end], builder))

    assert states == texts(built(rows))


unusual_fields = st.sampled_from(
    (
        ("latency_us", b"-1"),
        ("latency_us", b"%d" % 2**53),
        ("latency_us", b"%d" % 2**70),
        ("latency_us", b" 1_000"),
        ("latency_us", b"soon"),
        ("score", b"1e999"),
        ("score", b"NaN"),
        ("score", b"-0.0"),
        ("score", b"-1e-9"),
        ("score", b"9.99e-10"),
        ("score", b"0.49999999999999994"),
        ("score", b"high"),
        ("role", b"king"),
        ("role", b"\xff"),
        ("reason", b"whim"),
        ("predicted_at", b"1969-12-31T23:59:59.999999+00"),
        ("predicted_at", b"soon"),
        ("rollout_id", b"%d" % 2**70),
        ("rollout_id", b"some"),
        ("assigned_version_id", b""),
        ("cache_hit", b"true"),
        ("entity_id", b"ada\\"),
        ("prediction", b"one\tmore"),
        ("inputs", b"\n"),
    )
)
many_entities = st.builds(lambda call, number: call._replace(entity_id=f"n{number}"), calls, st.integers(0, 300))
any_latency = st.builds(lambda call, bits: call._replace(latency_us=2**bits), calls, st.integers(0, 53))


def with_field(line: bytes, name: str, value: bytes) -> bytes:
    fields = line.split(b"\t")
    fields[COLUMNS.index(name)] = value
    return b"\t".join(fields)


@pytest.mark.deep
@settings(max_examples=150)
@given(
    st.lists(st.lists(calls | many_entities | any_latency, max_size=40), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 39), unusual_fields), max_size=2),
)
@example([[a_call(), a_challenger_call(), a_fallback(), a_call(reason=Reason.FORCED)]], [])
@example([[a_call()], [a_call(), a_challenger_call("bob"), a_call("bob")]], [(0, 0, ("predicted_at", b"soon"))])
def test_rows_at_once_come_to_the_same_windows_as_one_by_one(batches, unusual):
    at_once, one_by_one = WindowBuilder("shipper-1"), WindowBuilder("shipper-1")
    texts_of = [lines(rows) for rows in batches]
    for batch, place, (name, value) in unusual:
        if batch < len(texts_of) and place < len(texts_of[batch]):
            texts_of[batch][place] = with_field(texts_of[batch][place], name, value)

    for rows in texts_of:
        staged = at_once.stage(rows, COLUMNS, slow_us_of)
        at_once.commit(staged)
        unreadable_rows, states = 0, dict[WindowKey, str]()
        for row in rows:
            single = one_by_one.stage([row], COLUMNS, slow_us_of)
            one_by_one.commit(single)
            unreadable_rows += single.unreadable_rows
            states |= texts(single.windows)

        assert list(texts(staged.windows).items()) == list(states.items())
        assert staged.unreadable_rows == unreadable_rows


@pytest.mark.deep
def test_many_rows_at_once_come_to_the_same_windows_as_in_small_batches():
    random = Random(15)
    rows = [
        a_call(f"customer-{random.randrange(30_000)}", latency_us=int(random.lognormvariate(9, 2)))._replace(
            score=random.gauss(0, 3), status=random.choice(tuple(Status)), role=random.choice(tuple(Role))
        )
        for _ in range(MAX_WINDOW_ENTITIES * 4)
    ]

    at_once, builder, states = built(rows), WindowBuilder("shipper-1"), dict[WindowKey, str]()
    for start in range(0, len(rows), 100):
        states |= texts(built(rows[start : start + 100], builder))

    assert texts(at_once) == states
    assert max(window.entities for window in at_once) > MAX_WINDOW_ENTITIES


@pytest.mark.deep
@settings(max_examples=25)
@given(st.lists(calls, max_size=20), st.lists(calls, max_size=20))
@example([a_call()], [a_call()])
def test_a_staged_batch_that_is_dropped_leaves_no_trace(dropped, rows):
    builder = WindowBuilder("shipper-1")
    built(rows, builder)

    builder.stage(lines(dropped), COLUMNS, slow_us_of)

    untouched = WindowBuilder("shipper-1")
    built(rows, untouched)
    assert texts(built(rows, builder)) == texts(built(rows, untouched))


def test_a_batch_staged_before_another_was_committed_is_refused():
    builder = WindowBuilder("shipper-1")
    first = builder.stage(lines([a_call()]), COLUMNS, slow_us_of)
    second = builder.stage(lines([a_call()]), COLUMNS, slow_us_of)
    builder.commit(first)

    with pytest.raises(ValueError, match="stage its rows again"):
        builder.commit(second)


NOT_IN_SIDES = {"volume", "cache_hits", "hurried_errors", "new_entities", "new_in_role", "positives"}
SUMS = [name for name in COUNTS if name not in NOT_IN_SIDES]
IN_MILLIONTHS = {"log_latency", "log_latency_squares", "score", "score_squares"}
BUCKET_UNITS = [MICRO if column.name.lower() in IN_MILLIONTHS else 1 for column in BucketColumn]


def cells_of(entries: np.ndarray, place: int) -> Counter[int]:
    """Return what a side's rows of window, cell and count say of one window."""
    found = Counter[int]()
    for window, cell, count in entries.tolist():
        found[cell] += count if window == place else 0
    return +found


def assert_is_sum(side: Side, place: int, windows: Sequence[Window]) -> None:
    """Compare a stratum with what adding the windows' integers gives.

    A side has sums in millionths as floats, whose last bit depends on the order of adding: in millionths they are the
    same integer again, and squares beyond 2^53 the same to twelve digits.
    """
    sums = [side[name][place] * (MICRO if name in IN_MILLIONTHS else 1) for name in SUMS]
    exact = [sum(getattr(window, name) for window in windows) for name in SUMS]
    assert sums == pytest.approx(exact, rel=1e-12, abs=0.4)
    buckets = sum((window.buckets for window in windows), no_buckets())
    assert ((side.buckets[:, place].T * BUCKET_UNITS).round() == buckets).all()
    assert cells_of(side.tails, place) == merged(window.tails for window in windows).counts
    assert cells_of(side.shared, place) == merged(window.shared_errors for window in windows).counts


def many_calls() -> list[PredictionRow]:
    """Return calls of both versions in three windows under two generations of the policy: slow ones, and errors."""
    random = Random(15)
    kinds = (a_call, a_challenger_call, a_fallback, lambda entity: a_fallback(entity, Status.TIMEOUT))
    return [
        random.choice(kinds)(f"customer-{number}")._replace(
            predicted_at=START + random.uniform(0, 40),
            policy_generation=random.choice((3, 4)),
            latency_us=int(random.lognormvariate(9, 2)),
            score=random.gauss(0, 3),
        )
        for number in range(200)
    ]


def arrival_of(window: Window) -> tuple[object, ...]:
    key, new = window.key, (window.new_entities, window.new_in_role)
    return (key.shipper, key.start, key.policy_generation, key.role is Role.CHALLENGER, *new)


def arrivals_of(strata: Strata) -> list[tuple[object, ...]]:
    shippers, *columns = strata.arrivals
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return sorted((shippers[shipper], *row) for shipper, *row in rows)


@pytest.mark.deep
@settings(max_examples=25)
@given(st.lists(calls, max_size=40), st.integers(0, 40), st.randoms(use_true_random=False))
@example([*many_calls(), a_call()._replace(role=Role.SHADOW, predicted_at=START + 50)], 100, Random(15))
@example([a_call(latency_us=90_000), a_call(latency_us=90_000)._replace(predicted_at=START + 20)], 1, Random(15))
def test_windows_of_several_shippers_in_any_order_and_in_parts_add_up_to_the_sums_of_their_integers(rows, cut, random):
    windows = [*built(rows[:cut]), *built(rows[cut:], WindowBuilder("shipper-2"))]
    own = [w for w in windows if w.key.rollout_id == ROLLOUT and w.key.role is not Role.SHADOW]
    random.shuffle(windows)
    middle = len(windows) // 2

    at_once = stratify(windows, ROLLOUT)
    in_parts = join_strata([stratify(part, ROLLOUT) for part in (windows[:middle], windows[middle:])])

    for strata in (at_once, in_parts):
        assert strata.starts.tolist() == sorted({window.key.start for window in own})
        for role, side in ((Role.CHAMPION, strata.champion), (Role.CHALLENGER, strata.challenger)):
            for place, start in enumerate(strata.starts.tolist()):
                assert_is_sum(side, place, [w for w in own if (w.key.role, w.key.start) == (role, start)])
        assert arrivals_of(strata) == sorted(map(arrival_of, own))


@pytest.mark.deep
@settings(max_examples=25)
@given(st.lists(calls, max_size=30))
def test_a_window_is_read_back_from_its_json(rows):
    for window in built(rows):
        found = window_from_json(window.key, window_to_json(window))

        assert found.key == window.key
        assert {name: getattr(found, name) for name in COUNTS} == {name: getattr(window, name) for name in COUNTS}
        assert (found.latencies, found.scores) == (window.latencies, window.scores)
        assert (found.buckets == window.buckets).all()


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", '"x"', '{"calls": "many"}', '{"calls": "9"}', '{"calls": -1}', '{"calls": 1.5}',
        '{"calls": null}',
        '{"volume": 9223372036854775808}', '{"volume": [1]}', f'{{"score_squares": "{"9" * 50}"}}', '{"errors": true}',
        '{"latencies": [1]}', '{"latencies": ["a", 1]}', '{"latencies": [1, "a"]}', '{"latencies": [1, -1]}',
        '{"scores": [99999999, 1]}', '{"scores": {"a": 1}}', '{"latencies": 7}', '{"scores": "ab"}',
        '{"buckets": [[1, 2]]}', '{"buckets": [[-1, 1, 0, 0, 0, 0, 0, 0]]}', '{"buckets": [[64, 1, 0, 0, 0, 0, 0, 0]]}',
        '{"buckets": [[1, 99999999999999999999, 0, 0, 0, 0, 0, 0]]}', '{"buckets": "x"}', '{"buckets": {"a": 1}}',
        '{"buckets": [[1, -5, 0, 0, 0, 0, 0, 0]]}', '{"buckets": [[1, 5, 0, 0, 0, 0, -1, 0]]}',
        '{"calls": 1, "log_latency": 900000000000000000}', '{"calls": 1, "log_latency": -50000001}',
        '{"calls": 9, "log_latency_squares": "170141183460469231731687303715884105727"}', '{"log_latency": 1}',
        '{"score_calls": 5, "score": -100000000000000000}',
        '{"score_calls": 1, "score_squares": "1000000000000000001"}',
        '{"buckets": [[1, 1, 0, 0, 0, 50000001, 0, 0]]}', '{"buckets": [[1, 0, 0, 0, 0, -9223372036854775808, 0, 0]]}',
        '{"buckets": [[1, 9, 0, 0, 0, 0, 1, 1000000000001]]}', '{"latencies": [2903, 1]}', '{"latencies": [-1, 1]}',
        '{"deadlines": [2903, 1]}', '{"tails": [1024, 1]}', '{"tails": [-1, 1]}', '{"shared_errors": [64, 1]}',
    ],
)  # fmt: skip
def test_what_is_not_a_window_is_refused(text):
    with pytest.raises(ValueError, match="not a window"):
        window_from_json(WindowKey("all", 0, 1, Role.CHAMPION, 0, 3, START), text)


@pytest.mark.parametrize("status", [Status.FALLBACK, Status.TIMEOUT, Status.UNAVAILABLE])
def test_a_fallback_is_an_error_of_the_challenger_and_no_call_of_the_champion(status):
    (window,) = built([a_fallback(status=status)])

    assert (window.key.model_version_id, window.key.role) == (CHALLENGER, Role.CHALLENGER)
    assert (window.volume, window.calls, window.errors, window.error_entities) == (1, 1, 1, 1)
    assert (window.answered, window.score_calls, window.latencies.total) == (0, 0, 0)


@pytest.mark.parametrize("status", [Status.TIMEOUT, Status.UNAVAILABLE, Status.BAD_ANSWER, Status.ERROR])
def test_a_call_that_the_champion_failed_as_well_is_counted_as_such(status):
    (window,) = built([a_fallback("ada", status), a_fallback("ada", status), a_fallback("bob")])

    assert (window.errors, window.error_entities, window.shared_error_entities) == (3, 2, 1)
    assert window.shared_errors.counts == {analysis_hash(b"ada") % ANALYSIS_BUCKETS: 2}


def test_an_entity_whose_call_the_champion_answered_once_is_the_challengers_failure_in_whichever_order():
    builder = WindowBuilder("shipper-1")

    (first,) = built([a_fallback("ada", Status.TIMEOUT)], builder)
    (second,) = built([a_fallback("ada")], builder)
    (third,) = built([a_fallback("ada", Status.TIMEOUT)], builder)

    assert [window.shared_error_entities for window in (first, second, third)] == [1, 0, 0]
    assert third.error_entities == 1


def test_without_a_fallback_nothing_is_known_of_the_champion():
    (window,) = built([a_challenger_call(status=Status.BAD_ANSWER, error_code="E502")])

    assert (window.error_entities, window.shared_error_entities, window.shared_errors.total) == (1, 0, 0)


def test_a_window_without_shared_errors_is_written_as_before_and_one_with_them_read_back():
    (shared,), (plain,) = built([a_fallback(status=Status.TIMEOUT)]), built([a_fallback()])

    assert "shared" not in window_to_json(plain)
    found = window_from_json(shared.key, window_to_json(shared))
    assert (found.shared_error_entities, found.shared_errors) == (1, shared.shared_errors)


def test_a_champion_that_stood_in_from_its_cache_makes_the_challenger_no_better():
    (window,) = built([a_fallback()._replace(cache_hit=True)])

    assert (window.calls, window.errors, window.cache_hits) == (1, 1, 0)


def test_forced_calls_are_nowhere_and_those_of_a_category_or_the_cache_are_not_judged():
    forced = a_call(reason=Reason.FORCED)
    category = a_call(reason=Reason.CATEGORY)
    hit = a_call("bob", cache_hit=True)

    (window,) = built([forced, category, hit])

    assert (window.volume, window.cache_hits, window.calls, window.entities) == (2, 1, 0, 0)
    assert window.new_entities == 1


def test_a_storm_of_retries_is_one_entity_with_errors():
    (window,) = built([a_call(status=Status.TIMEOUT)] * 50 + [a_call("bob")])

    assert (window.calls, window.errors, window.entities, window.error_entities) == (51, 50, 2, 1)


def test_an_entity_is_new_once_in_a_rollout_and_once_more_as_the_challengers():
    builder = WindowBuilder("shipper-1")

    (first,) = built([a_call()], builder)
    moved, stayed = built([a_challenger_call(), a_challenger_call(), a_call()], builder)

    assert (first.new_entities, first.new_in_role) == (1, 1)
    assert (moved.new_entities, moved.new_in_role) == (0, 1)
    assert (stayed.new_entities, stayed.new_in_role) == (1, 1)


def test_outside_of_a_rollout_and_in_the_shadow_no_entity_is_new():
    windows = built([a_call()._replace(rollout_id=None), a_challenger_call(role=Role.SHADOW)])

    assert [(w.entities, w.new_entities, w.new_in_role) for w in windows] == [(1, 0, 0)] * 2


def test_calls_beyond_the_threshold_and_a_fifth_more_are_slow():
    latencies = (SLOW_US, SLOW_US + 1, 12_000, 12_001)

    (window,) = built([a_call(str(n), latency_us=latency) for n, latency in enumerate(latencies)])

    assert (window.slow_low, window.slow_high) == (3, 1)


def test_a_late_row_gets_a_window_of_its_own_and_never_overwrites_the_closed_one():
    builder = WindowBuilder("shipper-1")
    (closed,) = built([a_call()], builder)
    built([a_call()._replace(predicted_at=START + OPEN_SECONDS + WINDOW_SECONDS)], builder)

    (late,) = built([a_call()], builder)
    (later,) = built([a_call()], builder)

    assert [window.key.epoch for window in (closed, late, later)] == [0, 1, 2]
    assert len({closed.key, late.key, later.key}) == 3
    assert late.calls == later.calls == 1


def test_a_row_within_the_open_time_still_adds_to_its_window():
    builder = WindowBuilder("shipper-1")
    built([a_call()], builder)
    built([a_call()._replace(predicted_at=START + OPEN_SECONDS)], builder)

    (window,) = built([a_call()], builder)

    assert (window.key.epoch, window.calls, window.entities) == (0, 2, 1)


@pytest.mark.deep
def test_more_windows_than_may_be_open_close_the_oldest():
    builder = WindowBuilder("shipper-1")
    many = [a_call()._replace(policy_generation=g) for g in range(MAX_OPEN_WINDOWS)]
    built([*many, *(a_call()._replace(predicted_at=START + n * WINDOW_SECONDS) for n in (1, 2))], builder)

    (window,) = built([a_call()], builder)

    assert window.key.epoch == 1


@pytest.mark.deep
def test_the_windows_that_calls_come_to_now_stay_open_however_many_they_are():
    builder = WindowBuilder("shipper-1")
    generations = range(MAX_OPEN_WINDOWS + 44)
    states: dict[WindowKey, str] = {}

    for number in range(10):
        at = START + number % 2 * WINDOW_SECONDS  # some are a little late, as rows of other threads are
        rows = [a_call()._replace(policy_generation=g, predicted_at=at) for g in generations]
        states |= texts(built(rows, builder))

    assert len(states) == 2 * len(generations)
    assert {key.epoch for key in states} == {0}


@pytest.mark.deep
def test_even_of_the_newest_windows_only_so_many_are_open():
    builder = WindowBuilder("shipper-1")
    built([a_call()._replace(policy_generation=g) for g in range(MAX_NEWEST_WINDOWS + 1)], builder)

    (window,) = built([a_call()], builder)

    assert window.key.epoch == 1


@pytest.mark.deep
def test_with_too_many_entities_in_all_new_ones_are_not_told_apart_until_the_oldest_windows_are_closed():
    builder = WindowBuilder("shipper-1")
    windows = MAX_OPEN_ENTITIES // MAX_WINDOW_ENTITIES
    entities = [a_call(f"customer-{n}") for n in range(MAX_WINDOW_ENTITIES)]
    for generation in range(windows + 1):
        built([call._replace(policy_generation=generation) for call in entities], builder)

    (known,) = built([a_call("customer-1")._replace(policy_generation=windows - 1)], builder)
    (past_the_bound,) = built([a_call("customer-1")._replace(policy_generation=windows)], builder)

    assert known.entities == known.calls - 1 == MAX_WINDOW_ENTITIES
    assert past_the_bound.entities == past_the_bound.calls == MAX_WINDOW_ENTITIES + 1

    later = START + (NEWEST_STARTS - 1) * WINDOW_SECONDS, START + NEWEST_STARTS * WINDOW_SECONDS
    built([a_call()._replace(predicted_at=start) for start in later], builder)
    (late,) = built([a_call("customer-1")], builder)
    built([a_call(f"customer-{n}")._replace(predicted_at=later[1]) for n in range(9)], builder)
    (told_apart,) = built([a_call("customer-1")._replace(predicted_at=later[1])], builder)

    assert late.key.epoch == 1
    assert (told_apart.key.epoch, told_apart.calls, told_apart.entities) == (0, 11, 10)


@pytest.mark.deep
def test_entities_past_the_bound_are_no_longer_told_apart():
    rows = [a_call(f"customer-{n}") for n in range(MAX_WINDOW_ENTITIES)]

    (window,) = built([*rows, *rows, a_call("another"), a_call("another")])

    assert window.entities == MAX_WINDOW_ENTITIES + 2


def of_rollouts(rollout_ids: Iterable[int], entities: Iterable[str] = ("ada",)) -> list[PredictionRow]:
    return [a_call(entity)._replace(rollout_id=rollout_id) for rollout_id in rollout_ids for entity in entities]


def new_entities_of(builder: WindowBuilder, rollout_id: int, entity: str) -> int:
    """How many more entities are new once the rollout meets one."""
    before = builder.opened(WindowKey("shipper-1", 0, CHAMPION, Role.CHAMPION, rollout_id, 3, START)).window
    (after,) = built(of_rollouts([rollout_id], [entity]), builder)
    assert after.calls == before.calls + 1
    return after.new_entities - before.new_entities


@pytest.mark.deep
@pytest.mark.parametrize("count", [MAX_ROLLOUTS + 1, MAX_OPEN_ROLLOUTS])
def test_with_many_open_rollouts_an_entity_that_comes_back_is_new_to_none(count):
    builder = WindowBuilder("shipper-1")
    newest: dict[int, int] = {}

    for _ in range(20):
        rows = of_rollouts(range(1, count + 1), [f"customer-{n}" for n in range(50)])
        newest |= {window.key.rollout_id: window.new_entities for window in built(rows, builder)}

    assert newest == dict.fromkeys(range(1, count + 1), 50)


def test_of_rollouts_that_are_over_the_one_that_was_met_longest_ago_is_forgotten():
    builder = WindowBuilder("shipper-1", open_rollouts=lambda: {1})
    for rollout_id in (1, 2, 3, 2, *range(4, MAX_ROLLOUTS + 2)):
        built(of_rollouts([rollout_id]), builder)

    assert builder.rollouts == {1, 2, *range(4, MAX_ROLLOUTS + 2)}
    assert [new_entities_of(builder, kept, "bob") for kept in (1, 2)] == [1, 1]


def test_of_too_many_open_rollouts_one_is_forgotten_and_no_entity_is_new_to_it_again():
    builder = WindowBuilder("shipper-1")
    for rollout_id in range(1, MAX_OPEN_ROLLOUTS + 2):
        built(of_rollouts([rollout_id]), builder)

    assert [new_entities_of(builder, 1, entity) for entity in ("ada", "bob", "bob")] == [0, 0, 0]
    assert new_entities_of(builder, 2, "bob") == 1
    assert builder.rollouts == set(range(2, MAX_OPEN_ROLLOUTS + 2))


def test_a_rollout_that_was_forgotten_gives_no_new_entities():
    builder = WindowBuilder("shipper-1", open_rollouts=set)
    for rollout_id in range(1, MAX_ROLLOUTS + 2):
        built(of_rollouts([rollout_id]), builder)

    windows = built([*of_rollouts([1], ["bob", "eve"]), a_challenger_call("zoe")._replace(rollout_id=1)], builder)

    assert [(window.new_entities, window.new_in_role) for window in windows] == [(1, 1), (0, 0)]


@pytest.mark.deep
def test_of_too_many_forgotten_rollouts_those_are_known_whose_rows_go_on():
    builder = WindowBuilder("shipper-1", open_rollouts=set)
    built(of_rollouts(range(1, MAX_ROLLOUTS + 3)), builder)

    for rollout_id in range(MAX_ROLLOUTS + 3, MAX_ROLLOUTS + 3 + MAX_FORGOTTEN):
        built(of_rollouts([1, rollout_id]), builder)

    assert 1 not in builder.rollouts
    assert new_entities_of(builder, 1, "bob") == 0
    assert new_entities_of(builder, 2, "bob") == 1


def test_rows_that_no_proxy_writes_are_in_no_window():
    good = lines([a_call()])[0]
    bad = [b"\n", b"what\n", good.replace(b"2025", b"soon"), good.replace(b"\tchampion\t", b"\tking\t")]

    staged = WindowBuilder("shipper-1").stage([*bad, good], COLUMNS, slow_us_of)

    assert (staged.unreadable_rows, [window.volume for window in staged.windows]) == (len(bad), [1])


def test_rows_of_a_format_without_the_needed_columns_are_in_no_window():
    staged = WindowBuilder("shipper-1").stage(lines([a_call()]), COLUMNS[:5], slow_us_of)

    assert (staged.unreadable_rows, staged.windows) == (1, ())


def test_the_analysis_bucket_is_the_entitys_own_hash_and_escapes_do_not_change_it():
    (window,) = built([a_call("a\tb")])

    assert window.buckets[analysis_hash(b"a\tb") % ANALYSIS_BUCKETS, BucketColumn.CALLS] == 1


def test_an_entity_met_is_known_and_hardly_any_other():
    seen = SeenEntities()
    met = [analysis_hash(b"met-%d" % n) for n in range(20_000)]
    others = [analysis_hash(b"other-%d" % n) for n in range(20_000)]

    seen.remember(met[:1])
    seen.remember(set(met))

    assert seen.have(np.array(met, np.uint64)).all()
    # 20,000 of 131,072 words hold one hash each: a stranger meets one by 15 %, and its bits by 4! / 64**4 at least.
    assert np.count_nonzero(seen.have(np.array(others, np.uint64))) <= 5
