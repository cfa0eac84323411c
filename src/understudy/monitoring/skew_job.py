"""Training/serving skew: served features of calls that were just logged, beside what the feature store has now.

The store is asked beside the ticks, so that one that hangs holds up no rollback. What has come is added to the hour of
the call in the next tick.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from shlex import quote
from typing import Any, NamedTuple

import orjson
import structlog

from understudy.core.alerts.alerts import FEATURES, AlertAction, AlertEvent, AlertKind
from understudy.core.drift.hours import HOUR_SECONDS, MAX_SUBJECT
from understudy.core.drift.skew.judgement import JUDGED_SECONDS, FeatureSkew, judge_skews
from understudy.core.drift.skew.pairs import Match, Pair, are_equal, compared
from understudy.core.drift.skew.tally import skew_windows, together
from understudy.core.drift.subject_window import SubjectWindow, skew_subject, skewed_feature
from understudy.core.routing.policy import Role
from understudy.core.windows.analysis_buckets import analysis_bucket
from understudy.errors import FeaturesUnavailable
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.metric_store import ActiveVersion, MetricStore, ServedCall
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.upstream.feature_store import FeatureStore

_log = structlog.get_logger(__name__)

CALLS_AT_ONCE = 200
"""Of a version in a tick, the newest ones: some thirteen reads of the store a second."""
READS_AT_ONCE = 8
READ_SECONDS = 1.0
ASK_SECONDS = 10.0
"""Calls that had no turn so long after a comparison began are not compared: with a slow store they would be too old."""
SETTLE_SECONDS = 5.0
"""The log's shipper is seconds behind."""
OLDEST_SECONDS = 30.0
"""Calls that are older are not compared: what the store has now says little of what it had then."""
AGAIN_SECONDS = 900.0
"""A value that differs is asked for again after this long. Where the store has yet another one it moves by itself too
fast to be compared, and does not count. What is left of a pace that lets it count is less than the limit (ADR 143)."""
MAX_WAITING = 2_000
"""Calls of a version with values that wait to be asked for again. While there are as many no more are compared, so that
a version of which all is wrong neither takes the store's time nor that of other versions."""
MAX_ALL_WAITING = 50_000
"""Of all versions together. The oldest are dropped, which nothing is concluded from."""
AGAIN_AT_ONCE = 1_000
"""Calls that are asked for again in a tick; those that wait longer are only surer not to move by themselves."""
MAX_FEATURES = 100
"""Of a version, the first ones by name: each is a row of an hour."""
JUDGE_SECONDS = 120.0
"""A version is judged this often, one of them in a tick."""
_COUNTED = "feature_skew_calls_total"
_COMPARED, _UNREAD = "compared", "unread"


class _Again(NamedTuple):
    """A call with values that differ, which are asked for again."""

    due: float
    version: ActiveVersion
    call: ServedCall
    """Without its inputs."""
    pairs: Sequence[Pair]
    stored: Mapping[str, Any]
    """What the store had, of these."""


class _Found(NamedTuple):
    """A pair that counts, in the hour of its call."""

    version_id: int
    hour: float
    bucket: int
    pair: Pair


@dataclass(slots=True)
class _Watched:
    """What is known of a version."""

    read_until: float
    hours: dict[tuple[str, float], SubjectWindow] = field(default_factory=dict)
    """Of late, by subject and start, as they are stored."""
    is_loaded: bool = False
    subjects: set[str] = field(default_factory=set)
    judged_at: float = 0.0
    skews: list[FeatureSkew] = field(default_factory=list)

    @property
    def is_judged(self) -> bool:
        """Whether all is known that can be; of a version that an earlier leader watched it is not at first."""
        return bool(self.judged_at) or not self.subjects


class SkewJob:
    """Compares, judges and alerts.

    Args:
        store: Logged calls, and the hours.
        features: The feature store that proxies read, or another one of the same entities.
        telemetry: Gets shares by feature.
        environment: Named in alerts.
    """

    def __init__(self, store: MetricStore, features: FeatureStore, telemetry: Telemetry, *, environment: str) -> None:
        self._store = store
        self._features = features
        self._telemetry = telemetry
        self._environment = environment
        self._watched: dict[int, _Watched] = {}
        self._again: deque[_Again] = deque(maxlen=MAX_ALL_WAITING)
        self._found: list[_Found] = []
        self._task: asyncio.Task[None] | None = None
        self._shown: dict[int, set[tuple[str, ...]]] = {}
        self._told: dict[str, AlertAction] = {}
        """The last event of each model that was given to the store."""
        self._asked_in: Epoch | None = None
        for word in (_COMPARED, _UNREAD):
            # A counter that first appears with 1 has not increased, for Prometheus.
            telemetry.count(_COUNTED, word, by=0)

    async def tick(self, epoch: Epoch) -> None:
        """Store what has come, judge a version, and begin to compare the newest calls; wait for no feature store.

        Raises:
            LeadershipLost: Another monitor leads, which compares by itself.
        """
        async with self._store.shared_session():
            active = await self._store.active()
            versions = [one for one in active.versions if one.role in (Role.CHAMPION, Role.CHALLENGER)]
            self._forget_others(versions)
            if self._asked_in != epoch:
                told = await self._store.open_incidents(AlertKind.DRIFT, self._environment, FEATURES)
                self._told = dict.fromkeys(told, AlertAction.TRIGGER)
                await self._resume([one for one in versions if one.model_name in told], active.now, epoch)
                self._asked_in = epoch
            await self._add_found(epoch)
            await self._judge_next(versions, active.now, epoch)
            await self._end_gone({one.model_name for one in versions}, active.now, epoch)
            if self._task is None or self._task.done():
                await self._end_compared()
                await self._begin(versions, active.now)

    async def settle(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await self._task

    async def stop(self) -> None:
        """Break off what is under way, and forget all: the next leader begins with the calls of its own time."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._watched.clear()
        self._again.clear()
        self._found.clear()
        self._told.clear()
        self._asked_in = None

    async def _end_compared(self) -> None:
        """Have a comparison that failed fail the tick, which the monitor counts and logs; the next one begins anew."""
        task, self._task = self._task, None
        if task is not None:
            await task

    # -- comparing -----------------------------------------------------------------------------------------------------

    async def _begin(self, versions: Sequence[ActiveVersion], now: float) -> None:
        """Read the calls since the last look, and ask for their features beside the ticks."""
        calls: list[tuple[ActiveVersion, ServedCall]] = []
        waiting = Counter(one.version.id for one in self._again)
        until = now - SETTLE_SECONDS
        for version in versions:
            watched = self._watched.setdefault(version.id, _Watched(read_until=until))
            since, watched.read_until = max(watched.read_until, now - OLDEST_SECONDS), until
            if since < until and waiting[version.id] < MAX_WAITING:
                served = await self._store.served_calls(version.id, since, until, CALLS_AT_ONCE)
                calls += [(version, call) for call in served]
        again: list[_Again] = []
        while self._again and self._again[0].due <= now and len(again) < AGAIN_AT_ONCE:
            again.append(self._again.popleft())
        if calls or again:
            self._task = asyncio.create_task(self._compare(calls, again, now))

    async def _compare(
        self, calls: Sequence[tuple[ActiveVersion, ServedCall]], again: Sequence[_Again], now: float
    ) -> None:
        turns, unread = asyncio.Semaphore(READS_AT_ONCE), Counter[str]()
        loop = asyncio.get_running_loop()
        until = loop.time() + ASK_SECONDS

        async def first_asked(version: ActiveVersion, call: ServedCall) -> None:
            document = _document(call)
            names = _names(document)
            async with turns:
                has_turn = names and loop.time() < until
                stored = await self._read(version, call, names, unread) if has_turn else None
            if stored is not None:
                self._sort(version, call, list(compared(document, call.defaulted, stored)), stored, now)

        async def asked_again(one: _Again) -> None:
            async with turns:
                stored = await self._read(one.version, one.call, [pair.feature for pair in one.pairs], unread)
            if stored is not None:
                alike = [pair for pair in one.pairs if are_equal(one.stored[pair.feature], stored.get(pair.feature))]
                self._found += [_found(one.version, one.call, pair) for pair in alike]

        await asyncio.gather(*(first_asked(*call) for call in calls), *(asked_again(one) for one in again))
        if unread:
            _log.warning(
                "skew.not_compared", calls=unread.total(), problems=[words for words, _ in unread.most_common(3)]
            )

    async def _read(
        self, version: ActiveVersion, call: ServedCall, names: Sequence[str], unread: Counter[str]
    ) -> Mapping[str, Any] | None:
        """Return what the store has; ``None`` where it does not say, which is added to ``unread`` with its reason."""
        try:
            found = await self._features.fetch(version.model_name, call.entity_id, names, READ_SECONDS)
        except FeaturesUnavailable as problem:
            self._telemetry.count(_COUNTED, _UNREAD)
            unread[problem.detail] += 1
            return None
        self._telemetry.count(_COUNTED, _COMPARED)
        return found

    def _sort(
        self, version: ActiveVersion, call: ServedCall, pairs: Sequence[Pair], stored: Mapping[str, Any], now: float
    ) -> None:
        """Keep what counts at once, and what is to be asked for again."""
        differing = [pair for pair in pairs if pair.match is Match.DIFFERS]
        self._found += [_found(version, call, pair) for pair in pairs if pair.match is not Match.DIFFERS]
        if differing:
            had = {pair.feature: stored[pair.feature] for pair in differing}
            self._again.append(_Again(now + AGAIN_SECONDS, version, call._replace(inputs=""), differing, had))

    # -- adding up -----------------------------------------------------------------------------------------------------

    async def _add_found(self, epoch: Epoch) -> None:
        """Add what has come to the hours of its calls, and store these; what is not stored waits for the next tick."""
        self._found.sort(key=lambda one: one[:2])  # a version's earlier hours first
        while self._found:
            version_id, hour = key = self._found[0][:2]
            alike = [one for one in self._found if one[:2] == key]
            watched = self._watched.get(version_id)
            if watched is not None:
                fresh = skew_windows(hour, [(one.bucket, one.pair) for one in alike])
                await self._add_hour(version_id, watched, fresh, hour, epoch)
            self._found = [one for one in self._found if one[:2] != key]

    async def _add_hour(
        self, version_id: int, watched: _Watched, fresh: Mapping[str, SubjectWindow], hour: float, epoch: Epoch
    ) -> None:
        # What differed in the hour before comes later than what was alike in this one.
        await self._load(version_id, watched, hour - HOUR_SECONDS)
        new = {}
        for name, window in fresh.items():
            subject = skew_subject(name)
            known = watched.hours.get((subject, hour))
            new[subject] = window if known is None else together(known, window)
        await self._store.add_hours(version_id, new, epoch=epoch)
        watched.hours |= {(subject, hour): window for subject, window in new.items()}
        watched.hours = {key: kept for key, kept in watched.hours.items() if key[1] >= hour - 2 * HOUR_SECONDS}
        watched.subjects |= new.keys()

    async def _resume(self, versions: Sequence[ActiveVersion], now: float, epoch: Epoch) -> None:
        """Know the features of models that an earlier leader alerted of: without calls nothing else would end that."""
        compared: set[str] = set()
        for version in versions:
            watched = self._watched.setdefault(version.id, _Watched(read_until=now - SETTLE_SECONDS))
            await self._load(version.id, watched, now - JUDGED_SECONDS)
            compared |= {version.model_name} if watched.subjects else set()
        for model_name in {version.model_name for version in versions} - compared:
            await self._tell(skew_event(model_name, [], self._environment, now), epoch)

    async def _load(self, version_id: int, watched: _Watched, since: float) -> None:
        """Read once what the leader before has stored."""
        if not watched.is_loaded:
            facts = await self._store.drift_facts(version_id, since)
            for subject, windows in facts.hours.items():
                if skewed_feature(subject) is not None:
                    watched.hours |= {(subject, window.start_seconds): window for window in windows}
                    watched.subjects.add(subject)
            watched.is_loaded = True

    # -- judging -------------------------------------------------------------------------------------------------------

    async def _judge_next(self, versions: Sequence[ActiveVersion], now: float, epoch: Epoch) -> None:
        """Judge the version that was judged longest ago, and tell of its model."""
        due = [(one, self._watched[one.id]) for one in versions if one.id in self._watched]
        due = [(one, watched) for one, watched in due if watched.subjects and now - watched.judged_at >= JUDGE_SECONDS]
        if not due:
            return
        version, watched = min(due, key=lambda item: item[1].judged_at)
        facts = await self._store.drift_facts(version.id, now - JUDGED_SECONDS, sorted(watched.subjects))
        watched.skews = await asyncio.to_thread(partial(judge_skews, facts.hours, now))
        watched.judged_at = now
        self._show(version, watched.skews)
        alike = [one for one in versions if one.model_name == version.model_name]
        known = [(one.version, self._watched[one.id]) for one in alike if one.id in self._watched]
        found = [(name, one.skews) for name, one in known]
        event = skew_event(version.model_name, found, self._environment, now)
        # That nothing is wrong any more is said of all versions together, once each was judged.
        if event.action is AlertAction.TRIGGER or all(one.is_judged for _, one in known):
            await self._tell(event, epoch)

    async def _tell(self, event: AlertEvent, epoch: Epoch) -> None:
        assert event.model_name is not None
        before = self._told.get(event.model_name, AlertAction.RESOLVE)
        if event.action is not before and await self._store.tell_drift([], event, epoch=epoch):
            _log.info("skew.told", model=event.model_name, action=event.action.value, summary=event.summary)
        self._told[event.model_name] = event.action

    async def _end_gone(self, model_names: Collection[str], now: float, epoch: Epoch) -> None:
        """End the incidents of models that serve no more: no comparison would."""
        for model_name in self._told.keys() - set(model_names):
            if self._told[model_name] is AlertAction.TRIGGER:
                await self._tell(skew_event(model_name, [], self._environment, now), epoch)
            del self._told[model_name]

    def _show(self, version: ActiveVersion, skews: Sequence[FeatureSkew]) -> None:
        shown: set[tuple[str, ...]] = set()
        for skew in skews:
            labels = (version.model_name, version.version, skew.feature)
            self._telemetry.set("feature_skew_ratio", skew.skewed_ratio, *labels)
            self._telemetry.set("feature_skewed", float(skew.is_skewed), *labels)
            shown.add(labels)
        self._drop(self._shown.get(version.id, set()) - shown)
        self._shown[version.id] = shown

    def _drop(self, gone: Collection[tuple[str, ...]]) -> None:
        for labels in gone:
            self._telemetry.forget("feature_skew_ratio", *labels)
            self._telemetry.forget("feature_skewed", *labels)

    def _forget_others(self, versions: Sequence[ActiveVersion]) -> None:
        ids = {version.id for version in versions}
        self._watched = {known: watched for known, watched in self._watched.items() if known in ids}
        for version_id in self._shown.keys() - ids:
            self._drop(self._shown.pop(version_id))


def skew_event(
    model_name: str, found: Sequence[tuple[str, Sequence[FeatureSkew]]], environment: str, now: float
) -> AlertEvent:
    """Return the event of a model: features that are served otherwise than stored, or that there are none.

    Args:
        model_name: Its name.
        found: What is known of each version that answers.
        environment: Named in the alert.
        now: Seconds since the epoch.
    """
    skewed = [(version, skew) for version, skews in found for skew in skews if skew.is_skewed]
    details = {
        "skewed": [_details(version, skew) for version, skew in skewed],
        "next": f"understudy drift skew {quote(model_name)}",
    }
    if skewed:
        version, first = skewed[0]
        more = f" And {len(skewed) - 1} more." if len(skewed) > 1 else ""
        summary = f"{model_name} v{version} is served features unlike the feature store's: {first.words}{more}"
    else:
        summary = f"{model_name}: no feature is known to be served unlike the feature store's any more"
    action = AlertAction.TRIGGER if skewed else AlertAction.RESOLVE
    return AlertEvent(action, AlertKind.DRIFT, environment, model_name, summary, now, details, topic=FEATURES)


def _details(version: str, skew: FeatureSkew) -> dict[str, Any]:
    return {
        "version": version,
        "feature": skew.feature,
        "since": skew.drift.since_seconds,
        "calls": skew.calls,
        "differs": skew.differs,
        "missing": skew.missing,
        "ratio": skew.ratio,
        "words": skew.words,
    }


def _document(call: ServedCall) -> Mapping[str, Any]:
    """Return a call's logged inputs; none of a row by hand that is no object or has a number beyond any float."""
    try:
        found = orjson.loads(call.inputs)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _names(document: Mapping[str, Any]) -> list[str]:
    """Return the features that are asked for: a name that is too long would be refused with the hour that has it."""
    return [name for name in sorted(document) if len(skew_subject(name)) <= MAX_SUBJECT][:MAX_FEATURES]


def _found(version: ActiveVersion, call: ServedCall, pair: Pair) -> _Found:
    hour = call.predicted_at // HOUR_SECONDS * HOUR_SECONDS
    return _Found(version.id, hour, analysis_bucket(call.entity_id), pair)
