"""Slices and outcomes that hold a step, on the page and on a terminal."""

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from stats.worlds import Traffic, slow_category

from understudy.core.canary.decision import CheckState, Decision, Evidence, Verdict
from understudy.core.canary.outcomes.outcome_check import OUTCOMES
from understudy.core.canary.slices.slice_figures import SliceFigures, SliceRow, SliceSide, SliceState
from understudy.core.prediction_log.call_slices import Slice
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Phase, RolloutState, new_rollout_state
from understudy.core.statistics.difference import Difference
from understudy.entrypoints.cli.rollout.page import rollout_page
from understudy.entrypoints.cli.rollout.slices_text import MAX_ROWS, slices_view
from understudy.entrypoints.documents.rollouts import slices_document
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, RolloutView
from understudy.rollout.history import RolloutHistory, history_of, slices_of
from understudy.rollout.status import RolloutStatus

BEGAN = 1_795_000_800.0
POLICY = PolicySeen("6", "7", 10, 3, 1)
OUTCOMES_OF_PLAN = [
    {"name": "converted", "limit_ratio": 0.1, "holds_step": True},
    {"name": "refunds", "limit_ratio": 0.2, "lower_is_better": True},
    {"name": "<b>kept</b>", "limit_ratio": 0.2, "lower_is_better": True, "holds_step": True},
]
PLAN = RolloutPlan((Step(10, 7_200, 100), Step(100, 0, 0)), canary_limits={"outcomes": OUTCOMES_OF_PLAN})
STATE = replace(
    new_rollout_state(1, "churn", PLAN, POLICY._replace(weight_percent=0), BEGAN), step_starts=(BEGAN,), policy=POLICY
)
WINDOWS = [
    replace(window, key=window.key._replace(start=window.key.start + int(BEGAN)))
    for window in Traffic(slow_category(3_000), 1).windows(0, 240, 10.0, 3)
]
FOUND = Difference(12_000, 4_000, 12_000.0, 4_000.0, 0.2, 0.198, -0.002, 0.16, 0.16)
OUTCOME = Evidence(
    OUTCOMES[0], CheckState.TOO_EARLY, 0.2, 0.198, 0.99, 0.84, 1.17, 0.9, 1.0, 400.0, 1.0, 20.0, 36_000, 4_000,
    subject="converted",
)  # fmt: skip
OTHER = OUTCOME._replace(check=OUTCOMES[1], subject="refunds")
KEPT = OUTCOME._replace(check=OUTCOMES[2], state=CheckState.OK, change_high=1.1, limit=1.2, subject="<b>kept</b>")
DECISION = Decision(Verdict.HOLD, "outcome converted holds the step", (OUTCOME, OTHER, KEPT))


HELD = "Outcomes that hold each step, champion → challenger"
NOTHING = RolloutHistory((), (), None, windows_are_gone=False)


def a_status(state: RolloutState = STATE, **changes: Any) -> RolloutStatus:
    record = RolloutRecord(1, state, 3, 1, 2, "salt", 20_000, "", "dana", None, None)
    view = RolloutView(record, POLICY, {3: 10}, 1, 1, {}, BEGAN + 3_600)
    return RolloutStatus(view, (), None)._replace(**changes)


def a_page(state: RolloutState = STATE, **changes: Any) -> str:
    status = a_status(state, **changes)
    slices = slices_of(status.view, WINDOWS, BEGAN + 3_600)
    return rollout_page(status, NOTHING._replace(slices=slices))


def rows_of(page: str, title: str) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    table = page.split(f"<h2>{title}</h2>")[1].partition("</table>")[0]
    return [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in table.split("<tr")[2:]]


@pytest.mark.deep
def test_the_history_of_a_rollout_has_its_slices_up_to_its_end():
    status = a_status()

    whole = history_of(status.view, WINDOWS, (), WINDOWS).slices
    half = history_of(status.view._replace(read_at=BEGAN + 1_800), WINDOWS, (), WINDOWS).slices

    assert whole == slices_of(status.view, WINDOWS, BEGAN + 3_600)
    assert 0 < sum(row.figures.champion.calls for row in half) < sum(row.figures.champion.calls for row in whole)


def test_the_page_has_each_slice_with_both_sides_figures_and_the_one_that_is_worse_first():
    first, *others = rows_of(a_page(), "Slices, champion → challenger")

    assert first[:2] == ["category=c0", "✖ worse"]
    usual, slow = (float(side.removesuffix(" ms")) for side in first[4].split(" → "))
    assert slow == pytest.approx(5 * usual, rel=0.1)
    assert [row[1] for row in others] == ["✔ pass"] * 7


@pytest.mark.parametrize(
    "state",
    [
        replace(STATE, step_starts=()),
        replace(STATE, plan=replace(PLAN, canary_limits={"slices": "off"})),
        replace(STATE, plan=replace(PLAN, canary_limits={}, canary_policy="seed")),
    ],
    ids=["no step", "off", "seed"],
)
def test_a_rollout_whose_slices_are_not_judged_shows_none(state):
    assert "Slices" not in a_page(state)


def test_the_page_has_each_outcome_that_holds_a_step_with_how_many_entities_show_it():
    converted, kept = rows_of(a_page(decision=DECISION, outcomes=(FOUND, None, FOUND)), HELD)

    assert converted[:-1] == ["converted", "… not shown yet", "0.99x (0.84–1.17)", "≥ 0.9x"]  # noqa: RUF001
    counted, asked = converted[-1].split(" of about ")
    assert counted == "12,000 → 4,000"
    assert int(asked.replace(",", "")) > 4_000
    assert kept[:2] == ["&lt;b&gt;kept&lt;/b&gt;", "✔ shown"]
    assert kept[3] == "≤ 1.2x"


def test_an_outcome_that_was_not_measured_yet_has_no_figures():
    nothing = OUTCOME._replace(champion=None, challenger=None, change=None, change_low=None, change_high=None)

    (row,) = rows_of(a_page(decision=replace(DECISION, evidence=(nothing,))), HELD)

    assert row[2:] == ["-", "≥ 0.9x", "0 → 0"]


def test_what_ended_shows_the_outcomes_that_its_verdict_stored():
    event = RolloutEventRecord(
        1, BEGAN + 3_600, 0, Phase.FAILED.value, Verdict.ROLL_BACK, "back", [OUTCOME.to_json()],
        {"outcomes": [FOUND._asdict(), None, None]}, {}, "1.0", "monitor",
    )  # fmt: skip
    record = RolloutRecord(1, replace(STATE, phase=Phase.FAILED), 3, 1, 2, "s", 20_000, "", "dana", BEGAN, None)
    view = RolloutView(record, POLICY, {3: 10}, 1, 1, {}, BEGAN + 3_600)

    page = rollout_page(RolloutStatus(view, (event,), None), NOTHING)

    assert rows_of(page, HELD)[0][4].startswith("12,000 → 4,000 of about ")


def a_row(number: int, state: SliceState = SliceState.OK) -> SliceRow:
    champion, challenger = SliceSide(2_700, 13, 135, 2_687 * 9.0), SliceSide(54, 53, 0, 1 * 9.1)
    return SliceRow(SliceFigures(Slice("category", f"c{number}"), 30, champion, challenger), state)


def shown(rows: Sequence[SliceRow], width: int) -> str:
    written = io.StringIO()
    console = Console(file=written, width=width, color_system=None, highlight=False, markup=False)
    for part in slices_view(rows, width):
        console.print(part)
    return written.getvalue()


@pytest.mark.parametrize(("width", "has_calls"), [(80, False), (120, True)])
def test_a_terminal_shows_slices_and_a_narrow_one_leaves_calls_out_first(width, has_calls):
    text = shown([a_row(1, SliceState.WORSE)], width)

    assert text.startswith("slices, champion → challenger:\n")
    assert "0.481 % → 98.1 %" in text
    assert "8.1 ms → 8.96 ms" in text
    assert "✖ worse" in text
    assert ("2,700 → 54" in text) is has_calls
    assert max(map(len, text.splitlines())) <= width


def test_more_slices_than_fit_are_counted():
    assert "and 3 more with fewer calls" in shown([a_row(number) for number in range(MAX_ROWS + 3)], 120)
    assert "more" not in shown([a_row(number) for number in range(MAX_ROWS)], 120)


def test_a_rollout_without_slices_says_so():
    assert "none, the challenger had no calls with a category or a marked feature" in shown([], 80)


def test_json_has_all_slices_with_both_sides():
    (document,) = slices_document([a_row(1, SliceState.UNPROVEN)])

    assert document["state"] == "unproven"
    assert document["challenger"] == {
        "calls": 54,
        "errors": 53,
        "slow": 0,
        "typical_seconds": pytest.approx(0.00895529),
    }
