"""A stored verdict is judged again; what other code said in other words still agrees, another verdict never does."""

from dataclasses import asdict, replace
from typing import Any

import orjson
import pytest
from stats.worlds import Traffic, World, cold_server

from understudy import __version__
from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import CheckState, Verdict
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.drift.beside_champion import BesideChampion
from understudy.core.drift.evidence import Measure
from understudy.core.statistics.difference import Difference
from understudy.core.windows.strata import stratify
from understudy.core.windows.strata_codec import strata_to_text
from understudy.ports.rollout.rollout_store import RolloutEventRecord
from understudy.rollout.verdicts.replay import Damage, Replay, judged_again, read_evidence, replayed
from understudy.rollout.verdicts.stored_outcomes import stored_outcomes

POLICY = CanaryPolicy(dwell_seconds=300, detectable_ratio=5)
STAGE = Stage("fraud", "42", 1, (0.0,), 3, 25.0, {1: 25.0})
NOW = 605.0
STRATA = stratify(
    Traffic(World("bad", requests_per_minute=2_000, error_rate=0.02, error_factor=4.0), 1).windows(0, 40, 25.0), 1
)
DECISION = judge(STRATA, POLICY, STAGE, NOW)


def stored(**changes: Any) -> RolloutEventRecord:
    """Return the event of a decision as it comes back from Postgres."""
    inputs = {"now": NOW, "stage": asdict(STAGE), "strata": strata_to_text(STRATA), "decision": DECISION.sentence}
    event = {
        "evidence": [row.to_json() for row in DECISION.evidence],
        "inputs": inputs,
        "thresholds": POLICY.to_json(),
    }
    read = orjson.loads(dumped(event))
    record = RolloutEventRecord(
        1, NOW, 0, "FAILED", DECISION.verdict, "bad", code_version=__version__, actor="monitor", **read
    )
    return record._replace(**changes)


def dumped(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)


def judged(event: RolloutEventRecord) -> Replay:
    found = replayed(event)
    assert found is not None
    return found


def with_reason(event: RolloutEventRecord, reason: str) -> RolloutEventRecord:
    return event._replace(inputs={**event.inputs, "decision": reason})


def with_states(event: RolloutEventRecord, before: CheckState, after: CheckState) -> RolloutEventRecord:
    rows = [{**row, "state": after.value} if row["state"] == before.value else row for row in event.evidence]
    return event._replace(evidence=rows)


def test_a_verdict_comes_to_the_same_again():
    assert judged(stored()) == Replay(DECISION, agrees=True)


def test_the_words_of_other_code_are_not_compared_and_those_of_the_same_code_are():
    other_words = with_reason(stored(), "errors: 4x")

    assert not judged(other_words).agrees
    assert judged(other_words._replace(code_version="0.0.9")).agrees


def test_another_verdict_or_another_failing_check_never_agrees_whoever_stored_it():
    event = stored(code_version="0.0.9")

    assert not judged(event._replace(verdict=Verdict.HOLD)).agrees
    assert not judged(with_states(event, CheckState.FAIL, CheckState.OK)).agrees


def test_a_check_that_decides_nothing_may_have_had_another_name():
    event = stored(code_version="0.0.9")

    assert judged(with_states(event, CheckState.OK, CheckState.UNPROVEN)).agrees


@pytest.mark.parametrize(
    ("stored_keys", "rules"),
    [
        ({}, Rules.STEPS),
        ({"restart_seconds": None}, Rules.STEPS),
        ({"restart_seconds": 180.0}, Rules.RESTARTS),
        ({"rules": 2}, Rules.INCIDENTS),
        ({"rules": 3}, Rules.DAYS),
        ({"rules": 4}, Rules.TAILS),
        ({"rules": 5}, Rules.COLD),
        ({"rules": 6}, Rules.OUTCOMES),
        ({"rules": 7}, Rules.SHARED_ERRORS),
        ({"rules": 8}, Rules.INTERVALS),
        ({"rules": 10}, Rules.CHANGES),
        ({"rules": 11}, Rules.MODERATED),
    ],
)
def test_a_verdict_is_judged_again_by_the_rules_that_made_it(stored_keys, rules):
    """Two minutes in which every call fails: by the rules before, that was a rollback."""
    calm, failing = World("calm", 3_000), World("failing", 3_000, error_factor=1e6)
    windows = [*Traffic(calm, 1).windows(0, 40, 25.0), *Traffic(failing, 1).windows(40, 8, 25.0)]
    strata, now = stratify(windows, 1), 48 * 15 + 5.0
    stage = replace(STAGE, rules=rules)
    decision = judge(strata, POLICY, stage, now)
    written = {name: value for name, value in asdict(stage).items() if name != "rules"} | stored_keys
    inputs = {"now": now, "stage": written, "strata": strata_to_text(strata), "decision": decision.sentence}
    rows = [row.to_json() for row in decision.evidence]

    replay = judged(stored(verdict=decision.verdict, evidence=rows, inputs=orjson.loads(dumped(inputs))))

    assert replay == Replay(decision, agrees=True)
    assert (decision.verdict is Verdict.ROLL_BACK) == (rules < Rules.INCIDENTS)
    checks = {row["check"] for row in rows}
    assert ("latency_change" in checks) == (rules >= Rules.DAYS)
    assert ("slow_p999" in checks) == (rules >= Rules.TAILS)


def test_a_verdict_on_a_cold_server_comes_to_the_same_again_by_the_rules_that_made_it():
    strata, now = stratify(Traffic(cold_server(3_000, 3.0), 1).windows(0, 40, 2.0), 1), 245.0
    verdicts = {}
    for rules in (Rules.TAILS, Rules.COLD):
        stage = replace(STAGE, rules=rules, weight_percent=2.0, weights_percent={1: 2.0})
        decision = judge(strata, POLICY, stage, now)
        inputs = {"now": now, "stage": asdict(stage), "strata": strata_to_text(strata), "decision": decision.sentence}
        rows = [row.to_json() for row in decision.evidence]
        event = stored(verdict=decision.verdict, evidence=rows, inputs=orjson.loads(dumped(inputs)))
        assert judged(event) == Replay(decision, agrees=True)
        verdicts[rules] = decision.verdict
        if rules == Rules.COLD:
            assert not judged(with_states(event, CheckState.WARMING, CheckState.OK)).agrees

    assert verdicts == {Rules.TAILS: Verdict.ROLL_BACK, Rules.COLD: Verdict.HOLD}


@pytest.mark.deep
def test_a_rollback_for_a_latency_that_changed_within_a_step_comes_to_the_same_again():
    late = World("turns slow", 333, latency_factor=2.0, onset_minute=300.0, entities=20_000)
    strata, now = stratify(Traffic(late, 1).windows(0, 1_280, 10.0), 1), 308 * 60 + 5.0
    stage = replace(STAGE, weight_percent=10.0, weights_percent={1: 10.0})
    decision = judge(strata, POLICY, stage, now)
    inputs = {"now": now, "stage": asdict(stage), "strata": strata_to_text(strata), "decision": decision.sentence}
    rows = [row.to_json() for row in decision.evidence]

    replay = judged(stored(verdict=decision.verdict, evidence=rows, inputs=orjson.loads(dumped(inputs))))

    assert decision.verdict is Verdict.ROLL_BACK
    assert [row.check.name for row in decision.evidence if row.state is CheckState.FAIL] == ["latency_change"]
    assert replay == Replay(decision, agrees=True)


def test_a_verdict_that_outcomes_held_comes_to_the_same_again():
    policy = CanaryPolicy(
        dwell_seconds=300,
        detectable_ratio=50,
        outcomes=(OutcomeLimit("converted", 0.1, holds_step=True), OutcomeLimit("refunds")),
    )
    outcomes = (Difference(9_000, 3_000, 9_000, 3_000, 0.2, 0.2, 0.0, 0.16, 0.16), None)
    strata = stratify(Traffic(World("calm", requests_per_minute=2_000), 1).windows(0, 40, 25.0), 1)
    decision = judge(strata, policy, STAGE, NOW, outcomes)
    inputs = {
        "now": NOW,
        "stage": asdict(STAGE),
        "strata": strata_to_text(strata),
        "decision": decision.sentence,
        **stored_outcomes(policy, outcomes),
    }
    event = stored(
        verdict=decision.verdict,
        evidence=[row.to_json() for row in decision.evidence],
        inputs=orjson.loads(dumped(inputs)),
        thresholds=orjson.loads(dumped(dict(policy.to_json()))),
    )

    assert judged(event) == Replay(decision, agrees=True)
    assert decision.verdict is Verdict.HOLD
    assert "outcome converted" in decision.reason
    assert [row.subject for row in read_evidence(event) if row.subject] == ["converted", "refunds"]
    without = event._replace(inputs={name: value for name, value in event.inputs.items() if name != "outcomes"})
    assert not judged(without).agrees


def test_a_rollback_for_a_drift_comes_to_the_same_again():
    drift = [BesideChampion("age", Measure.MEAN, 0.6, 0.1, 1e9, 400.0, 30.0, 36.0, 0.0, 900)]
    strata = stratify(Traffic(World("calm", requests_per_minute=2_000), 1).windows(0, 40, 25.0), 1)
    decision = judge(strata, POLICY, STAGE, NOW, drift=drift)
    inputs = {
        "now": NOW,
        "stage": asdict(STAGE),
        "strata": strata_to_text(strata),
        "decision": decision.sentence,
        "drift": [one.to_json() for one in drift],
    }
    rows = [row.to_json() for row in decision.evidence]
    event = stored(verdict=decision.verdict, evidence=rows, inputs=orjson.loads(dumped(inputs)))

    assert decision.verdict is Verdict.ROLL_BACK
    assert decision.reason.startswith(
        "drifts from the champion: age 36 vs 30 on the same hours, mean 0.60 sd (limit 0.1)"
    )
    assert judged(event) == Replay(decision, agrees=True)
    assert read_evidence(event)[-1].title == "drift age"


@pytest.mark.parametrize(
    ("before", "agrees"),
    [("4.12e+05 vs 3.98e+05", True), ("4.13e+05 vs 3.98e+05", False), ("4.12e+05 vs 398,000", False)],
)
def test_a_verdict_that_told_euros_with_an_exponent_comes_to_the_same_again_and_other_euros_do_not(before, agrees):
    drift = [BesideChampion("prediction", Measure.MEAN, 0.6, 0.1, 1e9, 400.0, 398_240.0, 412_345.0, 0.0, 900)]
    strata = stratify(Traffic(World("calm", requests_per_minute=2_000), 1).windows(0, 40, 25.0), 1)
    decision = judge(strata, POLICY, STAGE, NOW, drift=drift)
    assert "412,345 vs 398,240" in decision.sentence
    inputs = {
        "now": NOW,
        "stage": asdict(STAGE),
        "strata": strata_to_text(strata),
        "decision": decision.sentence.replace("412,345 vs 398,240", before),
        "drift": [one.to_json() for one in drift],
    }
    rows = [row.to_json() for row in decision.evidence]

    replay = judged(stored(verdict=decision.verdict, evidence=rows, inputs=orjson.loads(dumped(inputs))))

    assert replay.agrees is agrees


def test_the_rules_of_a_newer_release_are_named():
    newer = {**WHOLE, "stage": {**WHOLE["stage"], "rules": 99}}

    with pytest.raises(ValueError, match=r"rules: expected 0 to .*, got 99; a newer release made it"):
        replayed(stored(inputs=newer))


def test_an_event_without_a_verdict_is_not_judged():
    event = stored()

    assert replayed(event._replace(verdict=None)) is None
    assert replayed(event._replace(inputs={})) is None


def test_limits_that_were_others_are_those_that_count():
    strict = stored(thresholds=replace(POLICY, tolerated_error_ratio=50.0).to_json())

    assert judged(strict).decision.verdict is not Verdict.ROLL_BACK
    assert not judged(strict).agrees


WHOLE = stored().inputs
DAMAGE: dict[str, dict[str, Any]] = {
    "strata that are cut": {"inputs": {**WHOLE, "strata": WHOLE["strata"][:-9]}},
    "strata of something else": {"inputs": {**WHOLE, "strata": 5}},
    "no time": {"inputs": {"stage": WHOLE["stage"], "strata": WHOLE["strata"]}},
    "a time that is none": {"inputs": {**WHOLE, "now": "noon"}},
    "a stage of nothing": {"inputs": {**WHOLE, "stage": {}}},
    "a stage that is a text": {"inputs": {**WHOLE, "stage": "last"}},
    "an outcome of nothing": {"inputs": {**WHOLE, "outcome": {"a": 1}}},
    "outcomes that are a number": {"inputs": {**WHOLE, "outcomes": 7}},
    "limits out of bounds": {"thresholds": {"alpha": 7}},
    "limits that are a list": {"thresholds": []},
    "evidence of nothing": {"evidence": [{}]},
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_event_says_so_and_keeps_no_other_from_being_judged(kind):
    damaged = stored(id=2, **DAMAGE[kind])

    first, broken, last = judged_again([stored(), damaged, stored(id=3)])

    assert isinstance(broken[1], Damage)
    assert "cannot be" in broken[1].problem
    assert first[1] == last[1] == Replay(DECISION, agrees=True)
    with pytest.raises(ValueError, match="cannot be judged again"):
        replayed(damaged)


def test_what_could_not_be_read_from_the_start_is_not_judged():
    damaged = stored(damage="inputs is no object", inputs={})

    assert judged_again([damaged]) == [(damaged, Damage("inputs is no object"))]
