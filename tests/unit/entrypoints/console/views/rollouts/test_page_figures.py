"""Every figure of a rollout's page is the one of ``rollout show --json`` at the same look."""

import re
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.canary.checks import CHECKS, evidence_from_json
from understudy.core.canary.decision import CheckState, Decision, Evidence, Unit, Verdict
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import new_rollout_state
from understudy.core.routing.policy import Role
from understudy.entrypoints.cli.rollout.checks_text import check_cells
from understudy.entrypoints.console.views.rollouts.page import RolloutPage, rollout_page
from understudy.entrypoints.console.views.rollouts.seen import RolloutSeen
from understudy.entrypoints.documents.json_text import json_text
from understudy.entrypoints.documents.rollouts import status_document
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView
from understudy.rollout.status import RolloutStatus

BEGAN = 1_795_000_800.0
SCALES = {Unit.RATE: 100, Unit.SECONDS: 1_000}
shares = st.floats(1e-5, 1)
ratios = st.floats(1e-3, 1e3)
counts = st.integers(0, 10**7)
drawn = st.builds(
    Evidence,
    st.sampled_from([spec.check for spec in CHECKS]),
    st.sampled_from(list(CheckState)),
    champion=shares,
    challenger=st.none() | shares,
    change=st.none() | ratios,
    change_low=st.none() | ratios,
    change_high=st.none() | ratios,
    limit=ratios,
    evidence=st.floats(0, 1e9),
    evidence_needed=st.floats(1, 1e4),
    champion_requests=counts,
    challenger_requests=counts,
    since=st.none(),
    subject=st.none(),
)
worlds = st.lists(drawn, min_size=1, max_size=8, unique_by=lambda row: row.check.name)


def a_status(rows: list[Evidence], weight: int, seen: float) -> RolloutStatus:
    plan = RolloutPlan((Step(weight, 300, 1_000), Step(100, 0, 0)))
    policy = PolicySeen("6", "7", weight, 4, 1)
    warming = new_rollout_state(1, "churn", plan, policy._replace(weight_percent=0), BEGAN)
    state = replace(warming, step_starts=(BEGAN,), policy=policy)
    record = RolloutRecord(1, state, 3, 1, 2, "salt", 9_000, "retrain", "dana", None, None)
    view = RolloutView(record, policy, {4: weight}, 6, 5, {}, BEGAN + 480)
    decision = Decision(Verdict.HOLD, f"{rows[0].challenger_requests:,} of a million calls", tuple(rows))
    return RolloutStatus(view, (), decision, (), (), {Role.CHAMPION: 100 - seen, Role.CHALLENGER: seen}, 1.0)


@pytest.mark.deep
@given(worlds, st.integers(1, 99), st.floats(0.1, 99.9))
def test_a_pages_figures_are_those_of_the_document_to_the_digit(rows, weight, seen):
    status = a_status(rows, weight, seen)

    page = rollout_page(RolloutSeen(status, None, (), {}, (1,)))
    document = orjson.loads(json_text(status_document(status, ())))

    are_the_same(page, document["decision"]["evidence"])
    assert document["decision"]["reason"].endswith(page.sentence.partition(": ")[2])
    assert page.shares[1].configured == f"{document['rollout']['policy_weight_percent']} %"
    presence, shown = document["presence"], " ".join(row.answer for row in page.glance)
    assert f"{presence['proxies_on_generation']} of {presence['proxies']} live proxies" in shown
    assert f"{document['rollout']['policy_weight_percent']} % of the entities" in shown


def are_the_same(page: RolloutPage, documents: list[dict[str, float]]) -> None:
    assert len(page.checks) == len(documents)
    rows = [(evidence_from_json(figures), figures) for figures in documents]
    for shown in page.checks:  # those that fail stand first, and two of them may have one name
        cells = (shown.name, shown.champion, shown.challenger, shown.change, shown.limit, shown.evidence)
        known = [check_cells(row) for row, _ in rows]
        assert cells in known
        row, figures = rows.pop(known.index(cells))
        if row.check.unit in SCALES:
            number = re.match(r"[\d.e+-]+", shown.champion)
            assert number is not None
            assert number[0] == f"{figures['champion'] * SCALES[row.check.unit]:.3g}"
