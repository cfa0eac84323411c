"""What is said of calls that were sent again."""

from math import isnan, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.experiments.logged_calls import Answer
from understudy.core.experiments.replay_comparison import (
    ClassChanges,
    FailedCalls,
    IncomparableCalls,
    ReplayedCall,
    ReplayLatency,
    ReplayState,
    compare_replay,
)

answers = st.builds(Answer, st.none() | st.floats(-10, 10), st.none() | st.sampled_from(['"a"', '"b"'])).filter(
    lambda answer: answer != Answer(None)
)
fates: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"now": answers, "seconds": st.floats(0, 1)}),
    st.fixed_dictionaries({"code": st.sampled_from(["E502", "E504"]), "detail": st.text(max_size=3)}),
    st.fixed_dictionaries({"reason": st.sampled_from(["one", "other"])}),
)
replayed_calls = st.lists(st.tuples(answers, fates), max_size=30)


def a_call(number: int, then: Answer | None, **changes: Any) -> ReplayedCall:
    return ReplayedCall(f"p{number:03}", 1_763_661_000.0 + number, f"user-{number}", 1, then)._replace(**changes)


def scored(*pairs: tuple[float, float]) -> list[ReplayedCall]:
    return [
        a_call(number, Answer(then), then_seconds=0.02, now=Answer(now), seconds=0.01)
        for number, (then, now) in enumerate(pairs)
    ]


@given(replayed_calls, st.integers(0, 5))
def test_each_call_is_counted_once_whatever_became_of_it(calls, unsent):
    made = [a_call(number, then, **fate) for number, (then, fate) in enumerate(calls)]

    report = compare_replay(made, unsent)

    failed, unknown = (sum(one.calls for one in group) for group in (report.failed, report.incomparable))
    assert report.agreed + report.differed + failed + unknown + report.unsent == report.calls == len(calls) + unsent
    assert report.is_whole == (report.calls > 0 and report.agreed + report.differed == report.calls)
    assert len(report.examples) == min(report.differed, 5)


def test_of_scores_it_says_how_far_they_are_apart_and_which_differ_most():
    pairs = [(0.5, 0.5), (0.25, 0.30), (0.4, 0.1), (0.6, 0.7)]

    report = compare_replay(scored(*pairs), top=2)

    sizes = np.abs([now - then for then, now in pairs])
    assert (report.state, report.calls, report.replayed, report.agreed, report.differed) == ("compared", 4, 4, 1, 3)
    assert report.distances == pytest.approx((sizes.mean(), np.median(sizes), np.quantile(sizes, 0.95), 0.3))
    assert report.scores is not None
    assert report.scores.champion_mean == pytest.approx(0.4375)
    assert report.scores.shadow_mean == pytest.approx(0.4)
    assert report.scores.same_decision_percent == 100
    assert [call.prediction_id for call in report.examples] == ["p002", "p003"]
    assert [call.difference for call in report.examples] == pytest.approx([-0.3, 0.1])
    assert report.classes is None
    assert report.is_whole
    assert report.sentence == (
        "The same answer as then in 1 of 4 calls (25.0 %), the same decision at 0.5 in 100.0 %; "
        "the scores are 0.113 apart on average, 0.3 at most."
    )


def test_rounding_in_float32_is_no_other_answer():
    report = compare_replay(scored((0.54273081, 0.5427308), (1_000.0, 1_000.001), (0.0, 1e-12)))

    assert (report.agreed, report.differed) == (3, 0)
    assert report.sentence == "The same answer as then in all 3 calls."


def test_of_classes_it_says_how_many_calls_got_another_one_and_lists_those_first():
    calls = [
        a_call(0, Answer(0.9, '"a"'), now=Answer(0.6, '"a"'), seconds=0.01),
        a_call(1, Answer(0.9, '"a"'), now=Answer(0.8, '"b"'), seconds=0.01),
        a_call(2, Answer(None, '"a"'), now=Answer(None, '"b"'), seconds=0.01),
    ]

    report = compare_replay(calls)

    assert (report.agreed, report.differed, report.classes) == (1, 2, ClassChanges(3, 2))
    assert report.classes is not None
    assert report.classes.changed_percent == pytest.approx(200 / 3)
    assert [call.prediction_id for call in report.examples] == ["p002", "p001"]
    assert report.sentence == "The same answer as then in 1 of 3 calls (33.3 %); another class in 2."


def test_failures_are_said_first_by_code_and_make_the_replay_less_than_whole():
    failing = [a_call(10 + n, Answer(0.5), code="E504", detail=f"late {n}") for n in range(2)]
    refused = [a_call(20, Answer(0.5), code="E101", detail="/inputs/plan: missing")]

    report = compare_replay([*refused, *failing, *scored((0.5, 0.5))])

    assert report.failed == (FailedCalls("E504", 2, "late 0"), FailedCalls("E101", 1, "/inputs/plan: missing"))
    assert report.replayed == 4
    assert not report.is_whole
    assert report.sentence == (
        "3 of 4 calls failed (E504 2, E101 1). Of the others: the same answer as then in the only call."
    )


def test_answers_of_two_kinds_are_not_compared():
    calls = [
        a_call(0, Answer(0.5), now=Answer(0.5, '"a"'), seconds=0.01),
        a_call(1, Answer(0.5, '"a"'), now=Answer(0.5), seconds=0.01),
        a_call(2, None, reason="too long"),
    ]

    report = compare_replay(calls, unsent=2)

    assert report.state is ReplayState.NOTHING_COMPARED
    assert report.incomparable == (
        IncomparableCalls("a score then, and a class now", 1),
        IncomparableCalls("a class then, and a score now", 1),
        IncomparableCalls("too long", 1),
    )
    assert (report.replayed, report.unsent, report.calls) == (2, 2, 5)
    assert report.sentence == "Nothing can be compared. 2 were not sent: the time was over."


def test_latencies_of_then_are_those_of_calls_that_asked_one_model_server():
    calls = [
        *scored((0.5, 0.5), (0.5, 0.5)),
        a_call(3, Answer(0.5), then_seconds=nan, now=Answer(0.5), seconds=0.04),
        a_call(4, Answer(0.5), then_seconds=9.0, code="E504"),
    ]

    report = compare_replay(calls)

    assert report.latency == pytest.approx(ReplayLatency(0.02, 0.02, 0.01, 0.0394, 0.04))
    cached = compare_replay(calls[2:3]).latency
    assert cached is not None
    assert isnan(cached.then_p50_seconds)


def test_without_calls_nothing_is_good_or_bad():
    report = compare_replay([])

    assert report.state is ReplayState.NO_INPUTS
    assert not report.is_whole
    assert report.sentence.startswith("Nothing was replayed: no call with stored inputs")
