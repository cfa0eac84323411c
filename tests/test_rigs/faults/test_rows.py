"""The runner's own parts: what a row is judged by, what is asked, and what is printed."""

from collections import Counter

import pytest
from e2e.load import Answer, Load

from rigs.faults.inputs import body_of, distinct_of, inputs_of, scores_of, wrong_answers
from rigs.faults.links import Links
from rigs.faults.matrix import ROWS, chosen
from rigs.faults.measure import Measured, Stalls
from rigs.faults.not_here import NotBuilt, NotHere
from rigs.faults.report import line, table
from rigs.faults.row import Bound, Result, Row, Span, at_least, at_most, judge, not_built, not_here
from rigs.faults.world import Machine

FAMILIES = {
    "BASE": 1,
    "PG": 12,
    "RD": 11,
    "CH": 15,
    "CL": 3,
    "SH": 3,
    "FS": 4,
    "LG": 7,
    "PR": 11,
    "PO": 6,
    "MO": 4,
    "AL": 4,
    "SE": 5,
}


def a_row(*bounds: Bound) -> Row:
    return Row("PG-03", "refused", "rows wait", bounds, not_here("no"))


def an_answer(number: int, status: int = 200, body: bytes = b"{}", sent: float = 0.0, seconds: float = 0.01) -> Answer:
    return Answer(sent, seconds, status, {}, body, number)


def test_every_row_of_the_matrix_is_there_once():
    ids = [row.id for row in ROWS]

    assert len(set(ids)) == len(ids) == 86
    assert Counter(row.family for row in ROWS) == FAMILIES


def test_a_row_that_can_run_has_bounds():
    unbound = [row.id for row in ROWS if not row.bounds]

    assert set(unbound) <= {"PO-06", "SE-03", "SE-04"}


def test_rows_are_chosen_by_id_and_by_family_in_the_matrix_order():
    assert [row.id for row in chosen(["rd-02", "RD-01", "BASE"])] == ["BASE", "RD-01", "RD-02"]
    assert len(chosen(["PG"])) == FAMILIES["PG"]
    assert len(chosen([])) == len(ROWS)
    assert chosen(["nothing"]) == []


@pytest.mark.parametrize(
    ("figures", "verdict", "missed"),
    [
        ({"failed": 0, "found": 5}, "pass", ""),
        ({"failed": 1, "found": 5}, "short", "failed ≤ 0"),
        ({"failed": 0, "found": 4}, "short", "found ≥ 5"),
        ({"failed": 0}, "short", "found ≥ 5"),
        ({"failed": float("nan"), "found": 5}, "short", "failed ≤ 0"),
    ],
)
def test_a_row_passes_when_every_figure_is_there_and_within_its_bound(figures, verdict, missed):
    result = judge(a_row(*at_most(failed=0), *at_least(found=5)), figures)

    assert (result.verdict, result.reason) == (verdict, missed)


async def test_rows_that_do_not_run_say_why(tmp_path):
    machine = Machine(tmp_path, Links())

    with pytest.raises(NotHere, match="no root"):
        await not_here("no root")(machine, Span())
    with pytest.raises(NotBuilt, match="no roles"):
        await not_built("no roles")(machine, Span())


def test_the_table_has_a_line_for_each_row_with_its_figures_and_why_it_is_short():
    row = a_row(*at_most(failed=0))
    results = [judge(row, {"requests": 1_800, "failed": 3}), Result(row, "not here", {}, "no root")]

    text = table(results, ["a note"])

    assert "failed 3, requests 1,800  [failed ≤ 0]" in line(results[0])
    assert "[no root]" in text
    assert "2 rows: 1 short, 1 not here" in text
    assert text.endswith("a note")


def test_each_input_is_asked_for_six_times_within_sixty_requests():
    counts = Counter(distinct_of(number) for number in range(600))

    assert set(counts.values()) == {6}
    assert all(
        max(places) - min(places) < 60
        for wanted in range(10)
        if (places := [number for number in range(600) if distinct_of(number) == wanted])
    )
    assert body_of(0) == body_of(10)
    assert body_of(0) != body_of(1)


def test_a_wrong_score_a_cut_body_and_an_unknown_version_are_wrong_answers_and_the_truth_is_none():
    (score,) = scores_of(1, [inputs_of(distinct_of(7))])
    true = an_answer(7, body=b'{"version":"1","prediction":{"score":%.7f}}' % score)
    wrong = [
        true._replace(body=b'{"version":"1","prediction":{"score":%.7f}}' % (score + 0.01)),
        true._replace(body=b'{"version":"2","prediction":{"score":%.7f}}' % score),
        true._replace(body=b'{"version":"1","prediction":{}}'),
        true._replace(body=b'{"vers'),
    ]
    failed = an_answer(7, status=503)

    assert wrong_answers([true, failed]) == []
    assert sorted(wrong_answers([true, *wrong, failed])) == sorted(wrong)


def test_what_failed_is_what_was_refused_late_or_wrong_each_once():
    good, refused = an_answer(1), an_answer(2, status=503, sent=5.0)
    late = an_answer(3, seconds=2.5)
    load = Load([good, refused, late])

    seen = Measured(load, broken_at=1.0, mended_at=4.0, wrong=[late], after_mending=0.0, stalls=Stalls())

    assert seen.failed == [refused, late]
    assert seen.recover_s == 1.0
    assert seen.before == [good]
