"""Pairs of answers for a judge: what the champion answered, and what the challenger answers to the same inputs now.

Calls are drawn at random from the champion's of the last day whose inputs were logged, and sent to the challenger's
model server, past caches and log. One direction is enough: a pair is of the same inputs, whichever version was asked
first. Calls whose inputs are not wholly in the log, because one is private or a list, are left out: the answer would be
to others.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from secrets import randbits
from typing import Any, NamedTuple

import orjson

from understudy.core.canary.judge_limits import JudgeLimit
from understudy.core.canary.judge_question import compared_answer, pair_of, without
from understudy.core.canary.judgement_records import JudgeOutcome
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.core.routing.policy_document import apply_document
from understudy.core.schema.tensors import Row
from understudy.core.windows.analysis_buckets import analysis_bucket
from understudy.errors import BackendUnavailable
from understudy.ports.prediction_log.prediction_history import Draw, LoggedCall, ScoreHistory
from understudy.ports.registry.policy import PolicySource
from understudy.ports.rollout.rollout_store import RolloutRecord
from understudy.ports.upstream.model_backend import ConnectBackend
from understudy.rollout.warm_up.calls_again import answers_again, row_of

PAST_SECONDS = 86_400.0
"""Older calls are of another time of the champion's callers."""
_DRAWN_TIMES = 5
"""Entities that are drawn for each pair that is wanted: of some nothing can be sent, and some were judged."""
_HASHES = 2**64
_ALL_PERCENT = 100


class AnswerPair(NamedTuple):
    """Both versions' answers to the same inputs."""

    pair: str
    """Its digest."""
    prediction_id: str
    entity_bucket: int
    inputs: Mapping[str, Any]
    """Without private ones."""
    champion: Mapping[str, Any]
    challenger: Mapping[str, Any]


class Drawn(NamedTuple):
    """Pairs that were not judged before, or why there are none."""

    pairs: Sequence[AnswerPair] = ()
    idle: JudgeOutcome | None = None


class _Asked(NamedTuple):
    call: LoggedCall
    row: Row
    champion: Mapping[str, Any]


class AnswerPairs:
    """Draws pairs.

    Args:
        policies: Where the versions' rows are read.
        connect: Opens their model servers.
        protocols: Those of model servers that this release speaks.
        history: What was logged.
        new_key: Returns what entities are drawn by; a caller that knew it could be among them.
    """

    def __init__(
        self,
        policies: PolicySource,
        connect: ConnectBackend,
        protocols: Collection[str],
        history: ScoreHistory,
        *,
        new_key: Callable[[], int] = lambda: randbits(63),
    ) -> None:
        self._policies = policies
        self._connect = connect
        self._protocols = protocols
        self._history = history
        self._new_key = new_key

    async def draw(
        self, record: RolloutRecord, limit: JudgeLimit, known: Collection[str], at_most: int, now: float
    ) -> Drawn:
        """Return pairs that are not among the ``known`` ones.

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """
        sides = await self._sides(record)
        if sides is None:
            return Drawn(idle=JudgeOutcome.NO_ANSWERS)
        champion, challenger = sides
        draw = Draw(now - PAST_SECONDS, now, self._new_key(), _DRAWN_TIMES * at_most)
        calls = await self._history.drawn_calls(champion.id, draw)
        if not calls:
            return Drawn(idle=JudgeOutcome.NO_INPUTS)
        shown = [call for call in calls if is_shown(record.state.model_name, call.entity_id, limit.sample_percent)]
        asked = [one for one in (_asked_of(call, champion, challenger) for call in shown) if one is not None]
        if not asked:
            return Drawn(idle=JudgeOutcome.NOT_SENT_AGAIN)
        return await self._answered(champion, challenger, asked, known, at_most)

    async def _answered(
        self,
        champion: ModelVersion,
        challenger: ModelVersion,
        asked: Sequence[_Asked],
        known: Collection[str],
        at_most: int,
    ) -> Drawn:
        try:
            backend = self._connect(challenger)
        except BackendUnavailable:
            return Drawn(idle=JudgeOutcome.NO_ANSWERS)
        private = _private_in(champion) | _private_in(challenger)
        has_answers = False
        try:
            # In parts: where most were judged before, only as many are sent as it takes.
            for first in range(0, len(asked), at_most):
                part = asked[first : first + at_most]
                texts = await answers_again(challenger, backend, [one.row for one in part])
                pairs = [_pair(one, text, private) for one, text in zip(part, texts, strict=True)]
                answered = {pair.pair: pair for pair in pairs if pair is not None}
                has_answers = has_answers or bool(answered)
                if found := [pair for digest, pair in answered.items() if digest not in known]:
                    return Drawn(found)
                if not has_answers:
                    break
        finally:
            await backend.close()
        return Drawn(idle=JudgeOutcome.ALL_ASKED if has_answers else JudgeOutcome.NO_ANSWERS)

    async def _sides(self, record: RolloutRecord) -> tuple[ModelVersion, ModelVersion] | None:
        state = record.state
        document = await self._policies.load([state.model_name])
        snapshot = apply_document(PolicySnapshot(), document, complete=True, protocols=self._protocols)
        policy = snapshot.policies.get(state.model_name)
        known = {} if policy is None else policy.versions
        if state.champion not in known or state.challenger not in known:
            return None
        return known[state.champion], known[state.challenger]


def is_shown(model_name: str, entity_id: str, percent: float) -> bool:
    """Whether an entity's calls may be shown to a judge: always the same entities, by a hash of its own."""
    digest = blake2b(f"{model_name}:{entity_id}".encode(), digest_size=8, person=b"judged calls").digest()
    return int.from_bytes(digest) * _ALL_PERCENT < percent * _HASHES


def _asked_of(call: LoggedCall, champion: ModelVersion, challenger: ModelVersion) -> _Asked | None:
    answer = None if call.answer is None else compared_answer(call.answer)
    if answer is None:
        return None
    row = row_of(call.inputs, champion, challenger)
    return None if row is None else _Asked(call, row, answer)


def _private_in(version: ModelVersion) -> set[str]:
    return {feature.name for feature in version.input_schema.by_name.values() if feature.private}


def _pair(one: _Asked, text: bytes | None, private: Collection[str]) -> AnswerPair | None:
    challenger = None if text is None else compared_answer(text)
    if challenger is None:
        return None
    inputs = without(orjson.loads(one.call.inputs), private)
    digest = pair_of(inputs, one.champion, challenger)
    bucket = analysis_bucket(one.call.entity_id)
    return AnswerPair(digest, one.call.prediction_id, bucket, inputs, one.champion, challenger)
