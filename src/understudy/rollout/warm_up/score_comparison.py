"""Compares a challenger's scores with the champion's before its first share: of a shadow's calls, or of replayed ones.

What is sent goes to the model servers past caches and log, so nothing of it is written but the verdict.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from secrets import randbits
from typing import NamedTuple

import structlog

from understudy.core.canary.scores.score_agreement import (
    MAX_PAIRS,
    MIN_PAIRS,
    NO_INPUTS,
    Agreement,
    AgreementState,
    PairSource,
    ScorePairs,
    judge_agreement,
    spread_of,
)
from understudy.core.experiments.logged_calls import answer_of
from understudy.core.rollout.proxy_warm_up import IS_UNREADABLE, ProxyAnswer
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, Role
from understudy.core.routing.policy_document import apply_document
from understudy.core.schema.outputs import why_no_score
from understudy.core.schema.tensors import Row
from understudy.core.windows.histogram import Histogram, merged
from understudy.errors import BackendUnavailable, RegistryUnavailable
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.prediction_log.prediction_history import Draw, LoggedCall, ScoreHistory
from understudy.ports.registry.policy import PolicySource
from understudy.ports.rollout.warm_up import LoggedId
from understudy.ports.upstream.model_backend import ConnectBackend
from understudy.rollout.warm_up.calls_again import Sent, row_of, send_again
from understudy.rollout.warm_up.proxy_warm_up import ProxyWarmUp

_log = structlog.get_logger(__name__)

PAST_SECONDS = 7 * 86_400.0
"""Older calls are of other callers, or of another champion's time."""
MAX_ENTITIES_READ = 2 * MAX_PAIRS
"""Entities whose calls are drawn: not all of them can be sent again."""
USUAL_STRETCHES = 12
USUAL_EVERY_SECONDS = 7_200.0
"""What the champion's scores are like is read from so many stretches of its last day, this long from each other."""
USUAL_SECONDS = (120.0, 1_800.0)
"""How long a stretch is, and how long where these have too few scores."""


class Through(NamedTuple):
    """The live proxies that send calls again to model servers that only they reach."""

    instances: Sequence[str] = ()
    """Empty: this process sends them."""
    epoch: Epoch | None = None
    """Of the monitor that asks them."""


DIRECTLY = Through()


class ScoreComparison:
    """Compares a challenger's scores with the champion's on calls that both have answered.

    Args:
        policies: Where the versions' rows are read.
        connect: Opens their model servers.
        protocols: Those of model servers that this release speaks.
        history: What was logged.
        windows: What the champion's scores were like of late.
        proxies: Has live proxies send calls to servers that this process cannot reach.
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
        proxies: ProxyWarmUp | None = None,
        new_key: Callable[[], int] = lambda: randbits(63),
    ) -> None:
        self._policies = policies
        self._connect = connect
        self._protocols = protocols
        self._history = history
        self._windows = windows
        self._proxies = proxies
        self._new_key = new_key

    async def compare(
        self,
        model_name: str,
        champion: str,
        challenger: str,
        now: float,
        *,
        prefers_log: bool = False,
        through: Through = DIRECTLY,
    ) -> Agreement | None:
        """Return how the scores compare; ``None`` for versions that answer with classes or with several values.

        ``prefers_log`` asks the model servers even where a shadow's scores are known, which may be older than what was
        mended since. ``through`` names the proxies that have warmed the version up, if they did.

        Raises:
            RegistryUnavailable: The versions' rows cannot be read.
            LeadershipLost: Proxies are to be asked, and another monitor leads.
        """
        sides = await self._scored(model_name, champion, challenger)
        if sides is None:
            return None
        sources = [self._from_log, self._from_shadow] if prefers_log else [self._from_shadow, self._from_log]
        found = []
        for source in sources:
            found.append(await source(*sides, now, through))
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

    async def _from_shadow(
        self, champion: ModelVersion, challenger: ModelVersion, now: float, _: Through
    ) -> ScorePairs:
        try:
            draw = Draw(now - PAST_SECONDS, now, self._new_key(), MAX_PAIRS)
            pairs = await self._history.shadow_scores(champion.id, challenger.id, draw)
        except RegistryUnavailable as problem:
            return ScorePairs(PairSource.SHADOW, (), (), problem.detail)
        return ScorePairs(PairSource.SHADOW, [one for one, _ in pairs], [other for _, other in pairs])

    async def _from_log(
        self, champion: ModelVersion, challenger: ModelVersion, now: float, through: Through
    ) -> ScorePairs:
        try:
            draw = Draw(now - PAST_SECONDS, now, self._new_key(), MAX_ENTITIES_READ)
            calls = await self._history.drawn_calls(champion.id, draw)
        except RegistryUnavailable as problem:
            return ScorePairs(PairSource.LOG, (), (), problem.detail)
        if not calls:
            return ScorePairs(PairSource.LOG, (), (), NO_INPUTS)
        sendable = (_asked_of(call, champion, challenger) for call in calls)
        asked = list(islice(filter(None, sendable), MAX_PAIRS))
        if len(asked) < MIN_PAIRS:
            why = f"of logged calls of {len(calls)} entities those of {len(asked)} can be sent again"
            return ScorePairs(PairSource.LOG, (), (), why)
        try:
            if through.instances and self._proxies is not None:
                ids = [LoggedId(one.call.prediction_id, one.call.predicted_at) for one in asked]
                said = await self._proxies.replay(challenger, champion.id, ids, through.instances, epoch=through.epoch)
                return _worst(asked, said)
            return _pairs(asked, await self._sent(challenger, [one.row for one in asked]))
        except (BackendUnavailable, RegistryUnavailable) as problem:
            return ScorePairs(PairSource.LOG, (), (), problem.detail)

    async def _sent(self, version: ModelVersion, rows: Sequence[Row]) -> Sent:
        backend = self._connect(version)
        try:
            return await send_again(version, backend, rows)
        finally:
            await backend.close()


class _Asked(NamedTuple):
    """A logged call as it can be sent again, with the champion's score of then."""

    call: LoggedCall
    row: Row
    champion: float


def _asked_of(call: LoggedCall, champion: ModelVersion, challenger: ModelVersion) -> _Asked | None:
    """Return what can be sent; ``None`` where the log has no score of the call, or not all inputs."""
    answer = None if call.answer is None else answer_of(call.answer, call.score)
    if answer is None or answer.score is None or answer.label is not None:
        return None
    row = row_of(call.inputs, champion, challenger)
    return None if row is None else _Asked(call, row, answer.score)


def _worst(asked: Sequence[_Asked], said: Mapping[str, ProxyAnswer | None]) -> ScorePairs:
    """Return the pairs of the proxy whose model server differs most, or else of that with the most pairs."""
    found = [_judged(asked, instance, answer) for instance, answer in said.items()]
    if not found:
        return ScorePairs(PairSource.LOG, (), (), "no proxy has sent the logged calls again in time")
    return min(found, key=_badness).pairs


def _judged(asked: Sequence[_Asked], instance: str, answer: ProxyAnswer | None) -> Agreement:
    scores = answer.scores if answer is not None and answer.scores else (None,) * len(asked)
    problem = IS_UNREADABLE if answer is None else answer.problem
    agreement = judge_agreement(_pairs(asked, Sent(scores, f"{instance}: {problem}" if problem else "")))
    _log.info("rollout.scores_through_proxy", proxy=instance, state=agreement.state.value, found=agreement.words)
    return agreement


def _badness(found: Agreement) -> tuple[bool, float, int]:
    differs = found.state is AgreementState.DIFFERENT
    correlation = -1.0 if found.correlation is None else found.correlation
    return not differs, correlation if differs else 0.0, -len(found.pairs.champion)


def _pairs(asked: Sequence[_Asked], sent: Sent) -> ScorePairs:
    both = [(one.champion, score) for one, score in zip(asked, sent.scores, strict=True) if score is not None]
    return ScorePairs(PairSource.LOG, [one for one, _ in both], [other for _, other in both], sent.problem)
