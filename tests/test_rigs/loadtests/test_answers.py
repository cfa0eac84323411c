from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.answers import (
    Answer,
    BadRecord,
    Change,
    Recorded,
    answered_by,
    behind_ms,
    figures_of,
    log_figures,
    percentile,
    read_record,
    stale_ms,
    write_beginning,
    write_rest,
)

BOTH = frozenset({"1", "2"})


def an_answer(sent: float = 0.0, *, took: float = 0.01, status: int = 200, **fields) -> Answer:
    return Answer(
        **{"due": sent, "sent": sent, "ended": sent + took, "status": status, "version": "1", "generation": 1, **fields}
    )


def a_load(*answers: Answer, planned: int | None = None) -> Recorded:
    return Recorded(0.0, 10.0, len(answers) if planned is None else planned, list(answers))


@given(st.lists(st.floats(0, 1000), min_size=1), st.floats(1, 100))
def test_so_many_percent_do_not_exceed_a_percentile_and_no_smaller_value_has_that(values, percent):
    ordered = sorted(values)

    found = percentile(ordered, percent)

    needed = ceil(round(len(values) * percent / 100, 9))
    assert sum(value <= found for value in values) >= needed
    assert sum(value < found for value in values) < needed


def test_shares_are_of_all_requests_and_what_broke_counts_as_failed():
    statuses = [200] * 94 + [0, 500, 503, 504, 429, 422]

    figures = figures_of(a_load(*(an_answer(status=status) for status in statuses), planned=125))

    assert figures["availability_percent"] == 96
    assert figures["late_percent"] == 1
    assert figures["refused_percent"] == 2
    assert figures["asked_percent"] == 80
    assert "stale_ms" not in figures


def test_a_request_that_was_sent_late_took_from_when_it_was_due():
    late = Answer(due=1.0, sent=1.4, ended=1.5, status=200)

    figures = figures_of(a_load(late))

    assert figures["p50_ms"] == pytest.approx(500)
    assert behind_ms([late]) == pytest.approx(400)


def test_of_a_load_without_an_answer_nothing_is_known_but_that():
    assert figures_of(a_load(planned=10)) == {"asked_percent": 0}
    assert behind_ms([]) == 0


def test_fallbacks_and_hits_are_shares_of_all_answers_and_counted_by_version():
    answers = [an_answer(fallback=True), an_answer(cached=True), an_answer(version="2"), an_answer(status=0)]

    figures = figures_of(a_load(*answers))

    assert (figures["fallback_percent"], figures["cache_hit_percent"]) == (25, 25)
    assert answered_by(answers) == {"version 1 (fallback)": 1, "version 1 (cached)": 1, "version 2": 1, "no answer": 1}


CHANGES = [Change(1, 0.0, 0.0, frozenset({"1"})), Change(2, 5.0, 5.1, frozenset({"2"}))]


@pytest.mark.parametrize(
    ("answer", "stale"),
    [
        (an_answer(4.9), 0),  # before it
        (an_answer(5.05), 0),  # ordered, and not heard of yet
        (an_answer(5.3), 200),  # the older policy's
        (an_answer(5.4, generation=2), 300),  # a version that the new policy does not permit
        (an_answer(5.4, generation=2, version="2"), 0),
        (an_answer(5.4, generation=2, fallback=True), 0),  # the champion for a challenger that failed
        (an_answer(5.4, status=503), 0),  # nobody's answer
        (an_answer(3.0, version="2"), 3000),  # not permitted yet
        (an_answer(5.05, version="2", generation=2), 0),  # in force before the command had returned
    ],
)
def test_an_answer_is_stale_that_is_not_as_the_policy_in_force_says(answer, stale):
    assert stale_ms([answer], CHANGES) == pytest.approx(stale)


def test_a_change_is_known_when_the_first_answer_names_it():
    heard_late = [CHANGES[0], CHANGES[1]._replace(heard=9.0)]
    first = an_answer(5.0, took=0.1, version="2", generation=2)

    assert stale_ms([first, an_answer(5.6)], heard_late) == pytest.approx(500)
    assert stale_ms([an_answer(5.6)], heard_late) == 0


@given(st.lists(st.sampled_from(["once", "never", "twice", "refused"]), max_size=30))
def test_missing_and_doubled_rows_are_counted_by_id(fates):
    answers = [an_answer(prediction_id="" if fate == "refused" else f"id-{n}") for n, fate in enumerate(fates)]
    rows = {f"id-{n}": 2 if fate == "twice" else 1 for n, fate in enumerate(fates) if fate in ("once", "twice")}

    figures = log_figures(answers, {**rows, "another's": 1})

    assert figures == {"missing_rows": fates.count("never"), "doubled_rows": fates.count("twice")}


def test_a_load_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "answers.jsonl"
    answers = [an_answer(1.5, prediction_id="a", cached=True), an_answer(2.5, status=0, version="")]

    write_beginning(path, 1.0)
    write_rest(path, 9.5, 3, answers)

    assert read_record(path) == Recorded(1.0, 9.5, 3, answers)


@pytest.mark.parametrize("content", [b"", b'{"began": 1.0}\n', b"[1, 2]\n[3, 4]\n", b"no json\n"])
def test_what_is_no_whole_load_is_refused_with_its_name(tmp_path, content):
    path = tmp_path / "answers.jsonl"
    path.write_bytes(content)

    with pytest.raises(BadRecord, match=r"answers\.jsonl: not a load that came to its end"):
        read_record(path)
