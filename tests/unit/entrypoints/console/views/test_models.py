"""The Models page: trouble first, with its cause."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.core.alerts.alerts import AlertKind
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Kind, Phase, RolloutState, WaitingFor, new_rollout_state
from understudy.core.routing.arms import bucket_ranges
from understudy.entrypoints.console.reads import newest_of_models
from understudy.entrypoints.console.views.models import ModelRow, ModelsPage, ModelsSeen, models_page
from understudy.entrypoints.console.views.tone import Tone
from understudy.ports.registry.registry import AuditEntry, AuditSubject, ModelRecord, PolicyRecord
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, UnreadableRollout
from understudy.registry.rollback_moves import NEWS_SECONDS

NOW = 1_795_000_800.0
PLAN = RolloutPlan((Step(10, 300, 1_000), Step(100, 0, 0)))
POLICY = PolicySeen("6", "7", 10, 4, 1)


def a_state(name: str, **changes: Any) -> RolloutState:
    begun = new_rollout_state(1, name, PLAN, POLICY._replace(weight_percent=0), NOW - 600)
    return replace(begun, **{"step_starts": (NOW - 500,), "policy": POLICY, **changes})


def a_record(name: str, **changes: Any) -> RolloutRecord:
    state = a_state(name, **changes)
    finished_at = NOW - 60 if state.phase.is_final else None
    return RolloutRecord(1, state, 3, 1, 2, None, None, None, "dana", finished_at, None)


def a_model(name: str, weight: int = 0, challenger: str | None = "7") -> ModelRecord:
    moment = datetime.fromtimestamp(NOW - 720, UTC)
    policy = PolicyRecord(
        name,
        "6",
        challenger,
        weight,
        None,
        100,
        True,
        None,
        {},
        None,
        None,
        4,
        moment,
        "oncall",
        1,
        1,
    )
    return ModelRecord(name, policy, 2)


def a_page(*models: ModelRecord, **seen: Any) -> ModelsPage:
    return models_page(ModelsSeen(models, {}, {}, {}, NOW)._replace(**seen), None)


def the_row(record: RolloutRecord, weight: int = 0) -> ModelRow:
    [row] = a_page(a_model("churn", weight), rollouts={"churn": record}).rows
    return row


def test_a_calm_installation_says_so():
    page = a_page(a_model("churn"), a_model("visits"))

    assert (page.sentence, page.tone) == ("None of 2 models needs a person.", Tone.CALM)
    assert page.rows[0].changed == "12 min ago by oncall"


def test_what_changed_last_is_the_policy_or_an_act_on_its_rollout_that_changed_none():
    model = a_model("churn", 10)
    model = model._replace(policy=model.policy and model.policy._replace(updated_by="monitor"))
    at = NOW - 720
    paused = RolloutEventRecord(2, at + 540, 0, "WAITING", None, "paused by ana: lunch", (), {}, {}, "0.1.0", "ana")
    shown = {
        moment: a_page(model, rollouts={"churn": a_record("churn")}, acts={1: paused._replace(at=moment)})
        .rows[0]
        .changed
        for moment in (at, at + 540)
    }

    assert shown == {at: "12 min ago by the monitor", at + 540: "3 min ago by ana: rollout paused"}


@pytest.mark.parametrize(
    ("record", "weight", "state", "tone"),
    [
        (a_record("churn"), 10, "PROGRESSING 10 %", Tone.CALM),
        (a_record("churn", phase=Phase.WAITING, waiting_for=WaitingFor.TIME), 10, "WAITING 10 %", Tone.WAIT),
        (a_record("churn", phase=Phase.PROMOTING, promoted_at=NOW), 0, "PROMOTING", Tone.CALM),
        (a_record("churn", phase=Phase.FAILED, reason="errors"), 0, "rolled back", Tone.BAD),
        (a_record("churn", phase=Phase.FAILED), 25, "serving", Tone.CALM),
        (a_record("churn", phase=Phase.FAILED)._replace(finished_at=NOW - NEWS_SECONDS), 0, "serving", Tone.CALM),
        (a_record("churn", phase=Phase.SUCCEEDED), 0, "serving", Tone.CALM),
        (a_record("churn", kind=Kind.GUARD), 10, "serving", Tone.CALM),
        (a_record("churn", kind=Kind.GUARD, phase=Phase.WAITING), 10, "guard failed", Tone.BAD),
        (a_record("churn", kind=Kind.GUARD, phase=Phase.FAILED), 0, "taken back by its guard", Tone.BAD),
    ],
)
def test_a_model_says_what_state_it_is_in(record, weight, state, tone):
    row = the_row(record, weight)

    assert (row.state, row.tone) == (state, tone)


@pytest.mark.parametrize(
    ("champion", "state", "tone"), [("6", "rolled back", Tone.BAD), ("5", "changed by hand", Tone.WAIT)]
)
def test_a_promoted_version_that_was_taken_back_is_not_calm_and_says_by_whom(champion, state, tone):
    promoted = a_record("churn", phase=Phase.SUCCEEDED, policy=POLICY._replace(champion="7", challenger=None))
    moment = datetime.fromtimestamp(NOW - 720, UTC)
    entry = AuditEntry(
        1, "churn", 5, moment, "k1", "console", "slow", "update", None, None, AuditSubject.POLICY, "churn", None
    )
    model = a_model("churn")
    model = model._replace(policy=model.policy and model.policy._replace(champion=champion))
    page = a_page(model, rollouts={"churn": promoted}, changes={"churn": entry})

    assert (page.rows[0].state, page.rows[0].tone) == (state, tone)
    assert page.rows[0].reason.startswith("by k1 via console at ")
    assert page.rows[0].reason.endswith(": slow")
    assert page.sentence == f"1 of 1 needs a look: churn ({state})."


def test_trouble_comes_first_and_the_sentence_names_it():
    page = a_page(
        *(a_model(name, 10) for name in ("a", "b", "c")),
        rollouts={
            "b": a_record("b", phase=Phase.WAITING, waiting_for=WaitingFor.TIME, reason="too long"),
            "c": a_record("c", kind=Kind.GUARD, phase=Phase.WAITING, reason="errors 3x"),
        },
    )

    assert [row.name for row in page.rows] == ["c", "b", "a"]
    assert page.sentence == "2 of 3 need a look: c (guard failed), b (waiting 10 %)."
    assert [row.reason for row in page.rows] == ["errors 3x", "too long", ""]


def test_an_open_alert_makes_a_calm_model_one_to_look_at():
    [row] = a_page(a_model("churn"), alerts={"churn": {AlertKind.DRIFT}}).rows

    assert (row.alerts, row.tone) == (("drift",), Tone.WAIT)


@pytest.mark.parametrize("kind", [Kind.ROLLOUT, Kind.GUARD])
def test_while_no_monitor_looks_what_is_open_is_not_calm(kind):
    rollouts = {"churn": a_record("churn", kind=kind), "fraud": a_record("fraud", phase=Phase.SUCCEEDED)}
    models = a_model("churn", 10), a_model("fraud")
    page = a_page(*models, rollouts=rollouts, is_unwatched=True)
    watched = a_page(*models, rollouts=rollouts)

    assert page.sentence.startswith(
        "No monitor looks at open rollouts and guards: nothing is taken back by itself. 1 of"
    )
    assert [(row.tone, row.unwatched) for row in page.rows] == [
        (Tone.WAIT, "No monitor looks at it."),
        (Tone.CALM, ""),
    ]
    assert watched.sentence == "None of 2 models needs a person."
    assert models_page(ModelsSeen(models, rollouts, {}, {}, NOW, is_unwatched=True), {"fraud"}).tone is Tone.CALM


def test_a_model_without_a_policy_is_not_served_and_further_arms_are_named():
    arms = bucket_ranges({"8": 20}, "6")
    split = a_model("split", challenger=None)
    split = split._replace(policy=split.policy and split.policy._replace(arms=tuple(arms)))
    page = a_page(ModelRecord("new", None, 1), split)

    assert [(row.name, row.state) for row in page.rows] == [("new", "not served"), ("split", "serving")]
    assert page.rows[1].challenger == "8 at 20 %"


def test_a_visitor_sees_the_models_of_the_key_alone_and_the_sentence_counts_those():
    seen = ModelsSeen([a_model("churn"), a_model("fraud")], {}, {}, {}, NOW)

    page = models_page(seen, {"fraud"})

    assert [row.name for row in page.rows] == ["fraud"]
    assert page.sentence == "None of 1 model needs a person."


def test_who_may_see_no_model_is_not_told_that_there_is_none():
    seen = ModelsSeen([a_model("churn")], {}, {}, {}, NOW)

    assert models_page(seen, {"none"}).sentence == "There is no model that this key may see."
    assert models_page(seen._replace(models=[]), None).sentence.startswith("There is no model yet")


def test_a_rollback_that_a_newer_rollout_hides_is_told_beside_that_rollout():
    [row] = a_page(a_model("churn", 10), rollouts={"churn": a_record("churn")}, hidden={"churn": "Taken back."}).rows

    assert (row.state, row.hidden) == ("PROGRESSING 10 %", "Taken back.")


def test_a_rollout_of_a_newer_release_hides_no_older_one_behind_it_and_needs_a_look():
    newer = UnreadableRollout(9, "rollout", "churn", "PROGRESSING", NOW, "dana", "rollout 9 of churn cannot be read")
    older = newer._replace(id=3, model_name="fraud")
    records: list[RolloutRecord | UnreadableRollout] = [newer, a_record("churn"), a_record("fraud"), older]

    newest, unreadable = newest_of_models(records)
    page = a_page(a_model("churn"), a_model("fraud"), rollouts=newest, unreadable=unreadable)

    assert (list(newest), list(unreadable)) == (["fraud"], ["churn"])
    row = next(one for one in page.rows if one.name == "churn")
    assert (row.state, row.tone, row.reason) == ("of a newer release", Tone.WAIT, newer.problem)
