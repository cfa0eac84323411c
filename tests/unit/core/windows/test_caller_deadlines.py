"""What windows make of calls whose callers gave them less time than the champion has by itself."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic.spooled_rows import a_row

from understudy.core.canary.analysis import evaluate
from understudy.core.canary.decision import Verdict
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.post_promotion import judge_watch, past_of, watch_of
from understudy.core.prediction_log.row import COLUMNS, PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.routing.policy import Role
from understudy.core.windows.builder import WindowBuilder
from understudy.core.windows.caller_deadlines import ALONE, Share
from understudy.core.windows.histogram import Histogram, merged
from understudy.core.windows.metrics import version_counts
from understudy.core.windows.strata import stratify
from understudy.core.windows.window import BucketColumn, Window, window_from_json, window_to_json

START = 1_763_661_000
ROLLOUT = 7
SLOW_US = 60_000
CHAMPION, CHALLENGER = 1, 2
LONG_US = 225_000
"""0.4 of it are 1.5 times the threshold."""


def a_call(role: Role = Role.CHAMPION, entity: str = "ada", at: float = 0.25, **changes) -> PredictionRow:
    version = CHAMPION if role is Role.CHAMPION else CHALLENGER
    row = a_row()._replace(entity_id=entity, role=role, model_version_id=version, assigned_version_id=version)
    return row._replace(predicted_at=START + at, rollout_id=ROLLOUT, latency_us=50_000)._replace(**changes)


def out_of_time(role: Role = Role.CHAMPION, **changes) -> PredictionRow:
    """The champion stands in for a challenger, and says that itself timed out otherwise."""
    row = a_call(role)._replace(status=Status.TIMEOUT, error_code="E504", score=None)
    if role is Role.CHALLENGER:
        row = row._replace(model_version_id=CHAMPION, status=Status.FALLBACK, role=Role.CHAMPION)
    return row._replace(**changes)


def built(
    rows: Iterable[PredictionRow],
    slow_us: int | None = SLOW_US,
    columns: Sequence[str] = COLUMNS,
    share: Share = Share(),  # noqa: B008 - a value
) -> tuple[Window, ...]:
    lines = [encode_line(row) for row in rows]
    if columns is not COLUMNS:  # as a release before wrote them
        places = [COLUMNS.index(name) for name in columns]
        lines = [b"\t".join(line[:-1].split(b"\t")[place] for place in places) + b"\n" for line in lines]
    builder = WindowBuilder("here", share_of=lambda _rollout_id, _generation: share)
    staged = builder.stage(lines, columns, lambda rollout_id: slow_us if rollout_id == ROLLOUT else None)
    assert staged.unreadable_rows == 0
    return staged.windows


def only(windows: Sequence[Window]) -> Window:
    (window,) = windows
    return window


@pytest.mark.parametrize("role", [Role.CHAMPION, Role.CHALLENGER])
@pytest.mark.parametrize("call", [a_call, out_of_time])
def test_a_hurried_call_is_counted_and_judges_no_version_however_it_ended(role, call):
    window = only(built([call(role, deadline_us=LONG_US - 1)]))

    assert (window.volume, window.hurried_calls) == (1, 1)
    assert window.hurried_errors == (call is out_of_time)
    assert (window.calls, window.errors, window.entities, window.score_calls) == (0, 0, 0, 0)
    assert (window.new_entities, window.new_in_role) == (0, 0)
    assert not window.buckets.any()


@pytest.mark.parametrize("role", [Role.CHAMPION, Role.CHALLENGER])
def test_a_judged_call_that_ends_at_its_callers_deadline_is_a_slow_answer_and_no_error(role):
    window = only(built([out_of_time(role, latency_us=300_000, deadline_us=300_000)]))

    assert (window.calls, window.errors, window.error_entities, window.expired_calls) == (1, 0, 0, 1)
    assert (window.slow_low, window.slow_high, window.answered) == (1, 1, 1)
    # Both sides are censored at the challenger's share, 120 ms.
    assert window.log_latency == only(built([a_call(role, latency_us=120_000)])).log_latency
    assert window.buckets.sum(axis=0)[BucketColumn.ERRORS] == 0
    assert window.latencies.total == 0


def test_an_answer_after_the_challengers_share_is_compared_as_one_at_its_end():
    late, early = (only(built([a_call(latency_us=us, deadline_us=300_000)])) for us in (250_000, 120_000))

    assert (late.log_latency, late.slow_high, late.tails.counts) == (early.log_latency, 1, early.tails.counts)
    # What people are shown is how long it took.
    assert late.latencies.quantile(0.5) == pytest.approx(250_000, rel=0.01)


@pytest.mark.parametrize("code", ["E502", "E503", "E507"])
def test_what_fails_for_another_reason_is_an_error_whatever_its_deadline(code):
    failed = out_of_time(Role.CHALLENGER, deadline_us=LONG_US, error_code=code)

    window = only(built([failed]))

    assert (window.calls, window.errors, window.expired_calls) == (1, 1, 0)


def test_a_call_without_a_deadline_of_its_caller_that_times_out_is_an_error():
    window = only(built([out_of_time(Role.CHALLENGER)]))

    assert (window.calls, window.errors, window.hurried_calls) == (1, 1, 0)


def test_without_a_threshold_every_deadline_of_a_caller_is_too_short_to_judge_by():
    window = only(built([a_call(deadline_us=400_000), a_call()], slow_us=None))

    assert (window.calls, window.hurried_calls) == (1, 1)
    # The threshold is then found from all that was answered.
    assert window.latencies.total == 2


@pytest.mark.parametrize(("deadline_us", "hurried_calls"), [(90_000 - 1, 1), (90_000, 0)])
def test_a_champion_that_is_alone_has_the_whole_deadline(deadline_us, hurried_calls):
    window = only(built([out_of_time(deadline_us=deadline_us)], share=ALONE))

    assert (window.hurried_calls, window.expired_calls, window.slow_high) == (
        hurried_calls,
        1 - hurried_calls,
        1 - hurried_calls,
    )


def test_without_a_threshold_a_champion_that_is_alone_is_judged_by_all_but_time_outs():
    failed = out_of_time(deadline_us=400_000, error_code="E502", status=Status.BAD_ANSWER)

    window = only(built([failed, out_of_time(deadline_us=400_000), a_call()], slow_us=None, share=ALONE))

    assert (window.calls, window.errors, window.hurried_calls) == (2, 1, 1)


def test_outside_of_a_rollout_only_what_ended_at_its_deadline_is_left_out():
    rows = [a_call(deadline_us=60_000, latency_us=50_000), out_of_time(deadline_us=60_000), out_of_time()]

    window = only(built([row._replace(rollout_id=None) for row in rows]))

    assert (window.calls, window.errors, window.hurried_calls, window.hurried_errors) == (2, 1, 1, 1)


def test_a_metric_counts_every_call_whatever_its_deadline():
    rows = [
        a_call(),
        a_call(deadline_us=1_000),
        out_of_time(deadline_us=1_000),
        out_of_time(deadline_us=LONG_US),
        out_of_time(),
    ]

    counts = version_counts(built(rows))

    assert (counts.volume, counts.calls, counts.errors) == (5, 5, 3)


def test_rows_of_a_spool_of_the_release_before_are_read_as_before():
    columns = [name for name in COLUMNS if name != "deadline_us"]

    window = only(built([a_call(), out_of_time()], columns=columns))

    assert (window.calls, window.errors, window.hurried_calls) == (2, 1, 0)


def test_windows_with_calls_that_were_left_out_come_back_from_their_json_and_add_up():
    one = only(built([a_call(deadline_us=1_000), out_of_time(deadline_us=LONG_US)]))

    both = stratify([one, window_from_json(one.key, window_to_json(one))], ROLLOUT).champion

    assert [both[name].tolist() for name in ("hurried_calls", "expired_calls", "calls")] == [[2], [2], [2]]


@settings(max_examples=25)
@given(
    st.lists(
        st.builds(
            lambda role, timed, deadline, entity: (out_of_time if timed else a_call)(
                role, deadline_us=deadline, entity_id=entity
            ),
            st.sampled_from((Role.CHAMPION, Role.CHALLENGER)),
            st.booleans(),
            st.none() | st.integers(1, 500_000),
            st.sampled_from(("ada", "bob", "eve")),
        ),
        max_size=20,
    )
)
def test_every_call_is_judged_or_counted_as_hurried_and_what_is_judged_depends_on_the_deadline_alone(rows):
    windows = built(rows)

    assert sum(w.volume for w in windows) == sum(w.metric_calls for w in windows) == len(rows)
    is_judged = [row.deadline_us is None or row.deadline_us >= LONG_US for row in rows]
    assert sum(w.calls for w in windows) == sum(is_judged)
    in_time = [row for row, judged in zip(rows, is_judged, strict=True) if judged and row.deadline_us is None]
    assert sum(w.errors for w in windows) == sum(row.error_code is not None for row in in_time)


def traffic(minutes: int = 4) -> list[PredictionRow]:
    """Return calls of equal versions without deadlines, five a second of either side."""
    return [
        a_call(
            Role.CHALLENGER if number % 2 else Role.CHAMPION,
            f"user-{number}",
            number / 10,
            latency_us=30_000 + 7_919 * number % 40_000,
        )
        for number in range(600 * minutes)
    ]


@pytest.mark.deep
@pytest.mark.parametrize("roles", [(Role.CHALLENGER,), (Role.CHAMPION,), (Role.CHAMPION, Role.CHALLENGER)])
def test_ten_thousand_calls_with_a_deadline_of_a_millisecond_move_neither_verdicts_nor_the_split(roles):
    rows, flood = traffic(), []
    for number in range(10_000):
        role, at = roles[number % len(roles)], number % 2_300 / 10
        # Chosen entities that all belong to one side, some of which the model answers in time.
        call = a_call if number % 10 == 0 else out_of_time
        flood.append(call(role, entity_id=f"chosen-{number}", predicted_at=START + at, deadline_us=1_000))
    policy, stage = CanaryPolicy(), Stage("visits", "2", ROLLOUT, (float(START),), 2, 50.0, {3: 50.0})

    calm, flooded = built(rows), built([*rows, *flood])

    for moment in (30, 60, 120, 240, 300):
        now = float(START + moment)
        found, expected = evaluate(flooded, policy, stage, now), evaluate(calm, policy, stage, now)
        assert (found.verdict, found.evidence) == (expected.verdict, expected.evidence)
    assert evaluate(flooded, policy, stage, START + 300.0).verdict is Verdict.HOLD
    assert sum(window.hurried_calls for window in flooded) == 10_000


def test_after_a_promotion_calls_with_a_deadline_of_a_millisecond_are_evidence_of_neither_champion():
    def of(version: int, call: PredictionRow) -> PredictionRow:
        return call._replace(model_version_id=version, assigned_version_id=version)

    answers = [a_call(entity=f"user-{n}", at=n / 4, latency_us=30_000 + 7_919 * n % 40_000) for n in range(480)]
    late = [out_of_time(entity_id=f"user-{n}", predicted_at=START + n / 8, deadline_us=1_000) for n in range(960)]
    before = [of(CHAMPION, row._replace(rollout_id=None, predicted_at=row.predicted_at - 120)) for row in answers]
    late_before = [of(CHAMPION, row._replace(rollout_id=None, predicted_at=row.predicted_at - 120)) for row in late]
    after, late_after = ([of(CHALLENGER, row) for row in rows] for rows in (answers, late))
    stage = Stage("visits", "2", ROLLOUT, (float(START),), 1, 100.0, {3: 100.0})

    found = [
        watch_of(past_of(built(past), stage, CHAMPION), built(now), stage, CHALLENGER, START + 130.0)
        for past, now in [
            (before, after),
            ([*before, *late_before], after),
            (before, [*after, *late_after]),
        ]
    ]

    first, *others = (judge_watch(watch, START + 130.0) for watch in found if watch is not None)
    assert first.evidence[0].challenger_requests > 400
    assert [decision.evidence for decision in others] == [first.evidence] * 2


def test_a_new_champion_that_hangs_fails_by_deadlines_that_would_leave_a_challenger_too_little():
    answers = [
        a_call(entity=f"user-{n}", at=n / 4, latency_us=30_000 + 7_919 * n % 40_000, deadline_us=180_000)
        for n in range(480)
    ]
    before = [row._replace(rollout_id=None, predicted_at=row.predicted_at - 120) for row in answers]
    late = [
        out_of_time(
            entity_id=row.entity_id,
            predicted_at=row.predicted_at,
            deadline_us=180_000,
            model_version_id=CHALLENGER,
            assigned_version_id=CHALLENGER,
        )
        for row in answers
    ]
    stage = Stage("visits", "2", ROLLOUT, (float(START),), 1, 100.0, {3: 100.0})

    past = past_of(built(before), stage, CHAMPION)
    watch = watch_of(past, built(late, share=ALONE), stage, CHALLENGER, START + 130.0)

    assert watch is not None
    assert judge_watch(watch, START + 130.0).verdict is Verdict.ROLL_BACK


def test_a_verdict_that_lacks_requests_says_how_many_were_left_out():
    rows = [out_of_time(Role.CHALLENGER, deadline_us=140_000), a_call()]
    stage = Stage("visits", "2", ROLLOUT, (float(START),), 2, 50.0, {3: 50.0})

    decision = evaluate(built(rows), CanaryPolicy(), stage, START + 60.0)

    assert decision.verdict is Verdict.HOLD
    assert "1 challenger requests were left out: their callers' deadlines are too short" in decision.reason


def test_windows_keep_what_callers_gave_the_calls_that_may_be_judged():
    rows = [a_call(deadline_us=1_000), a_call(deadline_us=400_000), a_call(cache_hit=True, deadline_us=1_000), a_call()]

    window = only(built([row._replace(rollout_id=None) for row in rows]))
    again = window_from_json(window.key, window_to_json(window))

    assert window.deadlines.counts == Histogram.of([1_000.0, 400_000.0]).counts
    assert again.deadlines.counts == window.deadlines.counts
    assert merged([window.deadlines, again.deadlines]).total == 4


def test_a_window_without_such_calls_is_written_as_before():
    text = window_to_json(only(built([a_call()])))

    assert "hurried" not in text
    assert "expired" not in text
    assert "deadlines" not in text
