"""Pairs of answers for a judge: of which calls, what of them is shown, and why there may be none."""

from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np
import orjson
import pytest
from builders import a_version_row, policy_rows

from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.memory.policy import MemoryPolicySource
from understudy.adapters.model_servers.connect import PROTOCOLS
from understudy.core.canary.judge_limits import JudgeLimit
from understudy.core.canary.judgement_records import JudgeOutcome
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import new_rollout_state
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BadAnswer
from understudy.ports.prediction_log.prediction_history import Draw, LoggedCall, ScoreHistory
from understudy.ports.rollout.rollout_store import RolloutRecord
from understudy.rollout.checks.answer_pairs import AnswerPairs, Drawn, is_shown

NOW = 1.7e9
AGE, INCOME = {"name": "age", "dtype": "float32"}, {"name": "income", "dtype": "float32"}


class History:
    """What was logged of some entities: of private features nothing."""

    def __init__(self, calls: int, names: Sequence[str]) -> None:
        self.calls, self.names = calls, names

    async def drawn_calls(self, version_id: int, draw: Draw) -> Sequence[LoggedCall]:
        return [
            LoggedCall(
                f"id-{place}", NOW, f"user-{place}", version_id,
                orjson.dumps(dict.fromkeys(self.names, place)).decode(), f'{{"score":{place}}}', float(place), 1_000,
            )
            for place in range(min(self.calls, draw.entities))
        ]  # fmt: skip


def the_age_and_a_half(rows: Sequence[Row]) -> Tensor:
    ages = np.frombuffer(b"".join(bytes(row[0]) for row in rows), "<f4")
    return Tensor(Datatype.FP32, (len(rows),), ages + np.float32(0.5))


async def drawn(
    *,
    champion: Sequence[dict[str, Any]] = (AGE, INCOME),
    challenger: Sequence[dict[str, Any]] = (AGE, INCOME),
    calls: int = 8,
    known: Collection[str] = (),
    function: Any = the_age_and_a_half,
) -> tuple[Drawn, MemoryBackend]:
    versions = [
        a_version_row(label, input_schema={"features": list(features)})
        for label, features in (("1", champion), ("2", challenger))
    ]
    policies = MemoryPolicySource({"models": {"visits": policy_rows(versions=versions)}, "keys": []})
    backend = MemoryBackend(function)
    history = History(calls, [feature["name"] for feature in champion if not feature.get("private")])
    pairs = AnswerPairs(policies, lambda _: backend, PROTOCOLS, cast("ScoreHistory", history))
    state = new_rollout_state(1, "visits", NAMED_PLANS["default"], PolicySeen("1", "2", 0, 4, 1), NOW)
    record = RolloutRecord(1, state, 1, 1, 2, "salt", 9_000, None, "dana", None, None)
    return await pairs.draw(record, JudgeLimit("quality"), known, 4, NOW), backend


async def test_a_pair_is_both_answers_to_the_same_inputs():
    found, backend = await drawn()

    assert found.idle is None
    assert [(pair.champion, pair.challenger) for pair in found.pairs] == [
        ({"score": place}, {"score": place + 0.5}) for place in range(4)
    ]
    assert found.pairs[3].inputs == {"age": 3, "income": 3}
    assert found.pairs[3].prediction_id == "id-3"
    assert len(backend.calls) == 4


async def test_pairs_that_were_judged_are_left_out_and_others_are_looked_for():
    first, _ = await drawn()
    again, _ = await drawn(known={pair.pair for pair in first.pairs})
    all_of_them, _ = await drawn(known={pair.pair for pair in (*first.pairs, *again.pairs)})

    assert not {pair.pair for pair in first.pairs} & {pair.pair for pair in again.pairs}
    assert len(again.pairs) == 4
    assert all_of_them == Drawn(idle=JudgeOutcome.ALL_ASKED)


async def test_what_either_version_marks_private_is_in_no_question():
    found, _ = await drawn(challenger=[AGE, {**INCOME, "private": True}])

    assert [pair.inputs for pair in found.pairs] == [{"age": place} for place in range(4)]


@pytest.mark.parametrize("default", [{}, {"default": 1.0}], ids=["required", "with a default"])
async def test_an_input_that_is_not_in_the_log_makes_no_pair_since_the_answers_would_be_to_others(default):
    private = [AGE, {**INCOME, "private": True, **default}]

    found, backend = await drawn(champion=private, challenger=private)

    assert found == Drawn(idle=JudgeOutcome.NOT_SENT_AGAIN)
    assert not backend.calls


async def test_without_logged_inputs_or_answers_it_says_so():
    def refuses(_rows: Sequence[Row]) -> Tensor:
        raise BadAnswer("no")

    none, _ = await drawn(calls=0)
    silent, _ = await drawn(function=refuses)

    assert none == Drawn(idle=JudgeOutcome.NO_INPUTS)
    assert silent == Drawn(idle=JudgeOutcome.NO_ANSWERS)


def test_the_same_share_of_entities_is_shown_whenever_it_is_asked_and_a_larger_one_adds_to_it():
    entities = [f"person-{number}" for number in range(4_000)]

    tenth = {one for one in entities if is_shown("churn", one, 10.0)}
    half = {one for one in entities if is_shown("churn", one, 50.0)}

    assert 300 < len(tenth) < 500
    assert tenth < half
    assert all(is_shown("churn", one, 100.0) for one in entities)
