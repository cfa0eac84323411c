"""A challenger's scores beside the champion's of the same calls, before its first: of a shadow, or of calls sent again.

What is sent goes to the model servers past caches and log, so nothing of it is written but the verdict.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import islice
from secrets import randbits
from typing import NamedTuple

import orjson

from understudy.core.canary.score_agreement import (
    MAX_PAIRS,
    MIN_PAIRS,
    Agreement,
    PairSource,
    ScorePairs,
    judge_agreement,
    spread_of,
)
from understudy.core.experiments.logged_calls import adapt_inputs, answer_of
from understudy.core.requests.predict import PredictRequest
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, Role
from understudy.core.routing.policy_document import apply_document
from understudy.core.schema.outputs import Prediction, predictions_of, why_no_score
from understudy.core.schema.tensors import Row
from understudy.core.windows.histogram import Histogram, merged
from understudy.errors import BackendUnavailable, InputInvalid, RegistryUnavailable, ServingError
from understudy.ports.model_backend import ConnectBackend, ModelBackend
from understudy.ports.policy import PolicySource
from understudy.ports.prediction_history import Draw, LoggedCall, ScoreHistory
from understudy.ports.window_log import WindowLog

PAST_SECONDS = 7 * 86_400.0
"""Older calls are of other callers, or of another champion's time."""
MAX_ENTITIES_READ = 2 * MAX_PAIRS
"""Entities whose calls are drawn: not all of them can be sent again."""
USUAL_STRETCHES = 12
USUAL_EVERY_SECONDS = 7_200.0
"""What the champion's scores are like is read from so many stretches of its last day, this long from each other."""
USUAL_SECONDS = (120.0, 1_800.0)
"""How long a stretch is, and how long where these have too few scores."""
SENDING_SECONDS = 4.0
"""For all calls that are sent again: other rollouts wait as long."""
CONCURRENCY = 8


class ScoreComparison:
    """Compares a challenger's scores with the champion's on calls that both have answered.

    Args:
        policies: Where the versions' rows are read.
        connect: Opens their model servers.
        protocols: Those of model servers that this release speaks.
        history: What was logged.
        windows: What the champion's scores were like of late.
        new_key: Returns what entities are drawn by; a caller that knew it could be among them.
    """

    def __init__(
        self,
        policies: PolicySource,
        connect: ConnectBackend,
        protocols: Collection[str],
        history: ScoreHistory,
        windows: WindowLog,
        *,
        new_key: Callable[[], int] = lambda: randbits(63),
    ) -> None:
        self._policies = policies
        self._connect = connect
        self._protocols = protocols
        self._history = history
        self._windows = windows
        self._new_key = new_key

    async def compare(
        self, model_name: str, champion: str, challenger: str, now: float, *, prefers_log: bool = False
    ) -> Agreement | None:
        """Return how the scores compare; ``None`` for versions that answer with classes or with several values.

        ``prefers_log`` asks the model servers even where a shadow's scores are known, which may be older than what was
        mended since.

        Raises:
            RegistryUnavailable: The versions' rows cannot be read.
        """
        sides = await self._scored(model_name, champion, challenger)
        if sides is None:
            return None
        sources = [self._from_log, self._from_shadow] if prefers_log else [self._from_shadow, self._from_log]
        found = []
        for source in sources:
            found.append(await source(*sides, now))
            if len(found[-1].champion) >= MIN_PAIRS:
                break
        pairs = max(found, key=lambda pairs: (len(pairs.champion), pairs.source is PairSource.LOG))
        if len(pairs.champion) >= MIN_PAIRS:
            pairs = pairs._replace(usual_spread=await self._usual_spread(sides[0], now))
        return judge_agreement(pairs)

    async def are_scored(self, model_name: str, champion: str, challenger: str) -> bool:
        """Return whether both versions answer with one score, and neither with classes nor with several values.

        Raises:
            RegistryUnavailable: The versions' rows cannot be read.
        """
        return await self._scored(model_name, champion, challenger) is not None

    async def _scored(
        self, model_name: str, champion: str, challenger: str
    ) -> tuple[ModelVersion, ModelVersion] | None:
        document = await self._policies.load([model_name])
        snapshot = apply_document(PolicySnapshot(), document, complete=True, protocols=self._protocols)
        policy = snapshot.policies.get(model_name)
        known = {} if policy is None else policy.versions
        if champion not in known or challenger not in known:
            return None
        sides = known[champion], known[challenger]
        return None if any(why_no_score(side.output_schema) for side in sides) else sides

    async def _usual_spread(self, champion: ModelVersion, now: float) -> float | None:
        """Return how far the champion's scores spread in its last day; ``None`` where that is not known."""
        scores = Histogram()
        for seconds in USUAL_SECONDS:
            with suppress(RegistryUnavailable):
                scores = await self._usual_scores(champion, now, seconds)
            if scores.total >= MIN_PAIRS:
                return spread_of(scores)
        return None

    async def _usual_scores(self, champion: ModelVersion, now: float, seconds: float) -> Histogram:
        found = []
        for stretch in range(USUAL_STRETCHES):
            until = now - stretch * USUAL_EVERY_SECONDS
            windows = await self._windows.of_versions([champion.id], until - seconds, until)
            found += [window.scores for window in windows if window.key.role is not Role.SHADOW]
        return merged(found)

    async def _from_shadow(self, champion: ModelVersion, challenger: ModelVersion, now: float) -> ScorePairs:
        try:
            draw = Draw(now - PAST_SECONDS, now, self._new_key(), MAX_PAIRS)
            pairs = await self._history.shadow_scores(champion.id, challenger.id, draw)
        except RegistryUnavailable as problem:
            return ScorePairs(PairSource.SHADOW, (), (), problem.detail)
        return _pairs(PairSource.SHADOW, pairs)

    async def _from_log(self, champion: ModelVersion, challenger: ModelVersion, now: float) -> ScorePairs:
        try:
            draw = Draw(now - PAST_SECONDS, now, self._new_key(), MAX_ENTITIES_READ)
            calls = await self._history.drawn_calls(champion.id, draw)
        except RegistryUnavailable as problem:
            return ScorePairs(PairSource.LOG, (), (), problem.detail)
        if not calls:
            return ScorePairs(PairSource.LOG, (), (), "no inputs of the champion's calls are logged")
        sendable = (_asked_of(call, champion, challenger) for call in calls)
        asked = list(islice(filter(None, sendable), MAX_PAIRS))
        if len(asked) < MIN_PAIRS:
            why = f"of logged calls of {len(calls)} entities those of {len(asked)} can be sent again"
            return ScorePairs(PairSource.LOG, (), (), why)
        try:
            backend = self._connect(challenger)
        except BackendUnavailable as problem:
            return ScorePairs(PairSource.LOG, (), (), str(problem))
        try:
            return await _sent(challenger, backend, asked)
        finally:
            await backend.close()


class _Asked(NamedTuple):
    """A logged call as it can be sent again, with the champion's score of then."""

    row: Row
    champion: float


def _asked_of(call: LoggedCall, champion: ModelVersion, challenger: ModelVersion) -> _Asked | None:
    """Return what can be sent; ``None`` where the log has no score of the call, or not all inputs."""
    answer = None if call.answer is None else answer_of(call.answer, call.score)
    if answer is None or answer.score is None or answer.label is not None:
        return None
    logged = orjson.loads(call.inputs)
    if not isinstance(logged, dict):
        return None
    adapted = adapt_inputs(challenger.input_schema, champion.input_schema, logged)
    if adapted.unknown:
        return None
    try:
        return _Asked(PredictRequest(call.entity_id, adapted.values).assemble(challenger, None).row, answer.score)
    except InputInvalid:
        return None


async def _sent(version: ModelVersion, backend: ModelBackend, asked: Sequence[_Asked]) -> ScorePairs:
    """Send each call by itself, as a proxy would that has one at a time, until the time is over."""
    answered: list[tuple[int, float, float]] = []
    failed: list[str] = []
    waiting = iter(enumerate(asked))

    async def work() -> None:
        for place, call in waiting:
            try:
                tensor = await backend.infer([call.row], min(version.timeout_seconds, SENDING_SECONDS))
                (found,) = predictions_of(version.output_schema, tensor, 1, batch=version.input_schema.batch)
            except ServingError as problem:
                failed.append(str(problem))
                continue
            answer = answer_of(found.json, found.score) if isinstance(found, Prediction) else None
            if answer is None or answer.score is None or answer.label is not None:
                failed.append("an answer without a score" if isinstance(found, Prediction) else str(found))
            else:
                answered.append((place, call.champion, answer.score))

    with suppress(TimeoutError):
        async with asyncio.timeout(SENDING_SECONDS), asyncio.TaskGroup() as workers:
            for _ in range(CONCURRENCY):
                workers.create_task(work())
    late = len(asked) - len(answered) - len(failed)
    why = [f"{late} calls were not answered within {SENDING_SECONDS:g} s"] if late else []
    why += [f"{len(failed)} failed, the first with: {failed[0]}"] if failed else []
    return _pairs(PairSource.LOG, [scores for _, *scores in sorted(answered)], "; ".join(why))


def _pairs(source: PairSource, scores: Sequence[Sequence[float]], why_few: str = "") -> ScorePairs:
    return ScorePairs(source, [one for one, _ in scores], [other for _, other in scores], why_few)
