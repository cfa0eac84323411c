"""What a guard of several versions says in one line: each that is watched or failed, and none that ended well."""

from dataclasses import replace

from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Kind, Phase, RolloutState, new_rollout_state
from understudy.entrypoints.cli.shared.texts.guard_text import guard_words
from understudy.ports.rollout.rollout_store import RolloutRecord

BEGUN = PolicySeen("6", "7", 0, 4, 1)


def a_guard(number: int, version: str, **changes: object) -> RolloutRecord:
    policy = BEGUN._replace(challenger=version, rollout_id=number)
    state = new_rollout_state(number, "churn", NAMED_PLANS["default"], policy, 0.0)
    state = replace(state, kind=Kind.GUARD, policy=policy._replace(weight_percent=10))
    state = replace(state, **changes)  # type: ignore[arg-type]  # of several types
    assert isinstance(state, RolloutState)
    return RolloutRecord(number, state, 3, 1, 2, None, None, None, "dana", None, None, guard_id=1)


def test_each_version_of_a_guard_is_named_with_what_became_of_it():
    failed = a_guard(2, "8", phase=Phase.FAILED, reason="version 8 rolled back at 10 %: error rate 3.1x")
    over = a_guard(3, "9", phase=Phase.SUCCEEDED, reason="over")

    said = guard_words("rollback", [a_guard(1, "7"), failed, over])

    assert said == (
        "rollback: the monitor takes a share back that does worse; guard 1 watches version 7 at 10 %; "
        "guard 2 failed: version 8 rolled back at 10 %: error rate 3.1x"
    )


def test_without_a_guard_only_its_mode_is_said():
    assert guard_words("off", ()) == "off: only rollouts are watched"
