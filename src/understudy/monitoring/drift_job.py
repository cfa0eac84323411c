"""Drift of every active version, once for each hour that is over: summed up, judged, written, alerted.

A tick does a bounded part of that, so that the turn of an hour delays no rollout.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import groupby
from shlex import quote

import structlog

from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind
from understudy.core.drift.baseline import Baseline
from understudy.core.drift.hours import (
    HOUR_SECONDS,
    KEPT_SECONDS,
    MAX_CLASSES_READ,
    class_hour,
    closed_until,
    prediction_hour,
)
from understudy.core.drift.input_hours import input_hours, rows_of_hour
from understudy.core.drift.report import Drift, DriftState
from understudy.core.drift.subject_window import CLASSES, OF_ANSWERS, PREDICTION, input_subject
from understudy.core.drift.version_drift import ModelDrift, judge_version, judged_inputs, model_drift
from understudy.core.routing.policy import Role
from understudy.errors import LeadershipLost, RegistryError
from understudy.monitoring.class_names import ClassNames
from understudy.ports.monitoring.change_history import ChangeHistory
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.metric_store import ActiveVersion, ActiveVersions, MetricStore, MetricValue
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

WINDOWS_AT_ONCE = 1_000
"""A tick begins no further hour once it has read this many windows (0.08 ms each), and judges nothing after any."""
VALUES_PER_WINDOW = 80
"""Logged values of inputs (1 µs each) count as one window."""
HOURS_AT_ONCE = 24
SUBJECTS_AT_ONCE = 25
SUBJECT_HOURS_AT_ONCE = 1_000
"""A tick judges no further subject once it has read this many hours (0.15 ms each)."""
MAX_ROUND_SECONDS = 24 * HOUR_SECONDS
"""A model that could not be judged within an hour is judged to the end as of that hour, unless it is this long ago."""
FIRST_SECONDS = 24 * HOUR_SECONDS
"""How far back the hours of a version are summed up that has none yet."""
MAX_SECONDS = 7 * 24 * HOUR_SECONDS
"""How far back they are after an outage."""
_NAME_CHARACTERS = 100
"""Of ``PredictionMetric.metric_name``."""
_DIGEST_CHARACTERS = 16

_Facts = tuple[float, str]
"""What a judgement rests on: until when, and the digest of the version's metrics."""


@dataclass(slots=True)
class _Judgement:
    """What is known of a version's drift while its subjects are judged, some in each tick."""

    facts: _Facts
    left: list[str]
    """Subjects that are still to be judged."""
    drifts: list[Drift] = field(default_factory=list)


class DriftJob:
    """Judges some subjects of a version in a tick, and alerts once all versions of its model are judged."""

    def __init__(
        self,
        store: MetricStore,
        windows: WindowLog,
        telemetry: Telemetry,
        *,
        environment: str,
        changes: ChangeHistory | None = None,
    ) -> None:
        self._store = store
        self._changes = changes
        self._windows = windows
        self._telemetry = telemetry
        self._environment = environment
        self._judged: dict[int, _Judgement] = {}
        """By version id; a new leader judges every version once."""
        self._watched: dict[int, tuple[str, Mapping[str, Baseline]]] = {}
        """The inputs of a version that are looked at, with the digest of the metrics that say so."""
        self._told: dict[str, tuple[float, tuple[object, ...]]] = {}
        """What the last alert of a model rested on: until when, and on which versions."""
        self._asked_in: Epoch | None = None
        """In which epoch the outbox was asked for the alerts of earlier leaders."""
        self._rounds: dict[str, float] = {}
        """As of when each model is being judged, or was judged last."""
        self._shown: dict[int, set[tuple[str, ...]]] = {}
        """The labels of a version's gauges."""
        self._class_names = ClassNames(store)

    async def tick(self, epoch: Epoch) -> None:
        """Do the next part; a version that cannot be summed up or judged keeps no other model from its turn.

        Raises:
            LeadershipLost: Another monitor leads; what was not written is that one's.
            Exception: The last failure, once the others had their turn.
        """
        async with self._store.shared_session(), self._windows.shared_session():
            await self._tick(epoch)

    async def _tick(self, epoch: Epoch) -> None:
        active = await self._store.active()
        until = closed_until(active.now)
        failures: list[Exception] = []
        summed, windows_read = await self._sum_hours(active.versions, until, failures, epoch)
        await self._end_gone(active.versions, active.now, epoch)
        self._forget_inactive(active.versions)
        if not windows_read:
            await self._follow_next(active, summed, until, failures, epoch)
        if failures:
            raise failures[-1]

    async def _follow_next(
        self,
        active: ActiveVersions,
        summed: Mapping[int, float],
        until: float,
        failures: list[Exception],
        epoch: Epoch,
    ) -> None:
        """Judge the next version, or tell of the next model."""
        models = [list(group) for _, group in groupby(active.versions, key=lambda version: version.model_name)]
        # Those that waited longest first: with more subjects than an hour has room for, each model has its turn.
        for versions in sorted(models, key=lambda versions: self._told_until(versions[0].model_name)):
            as_of = self._begin_round(versions[0].model_name, until)
            # Told of half its versions, a model would be called well while the other half drifts.
            is_summed = all(summed[one.id] >= as_of for one in versions)
            with _kept_apart(versions[0].model_name, failures):
                if is_summed and await self._follow(versions, active.now, as_of, epoch):
                    return

    async def _sum_hours(
        self, versions: Sequence[ActiveVersion], until: float, failures: list[Exception], epoch: Epoch
    ) -> tuple[dict[int, float], int]:
        """Sum up hours that are over, the oldest first.

        Returns:
            Until when each version is summed up, by its id, and how many windows that took.
        """
        by_id = {version.id: version for version in versions}
        summed = {version.id: _summed_until(version, until) for version in versions}
        windows_read = 0
        # Champions first: what their hour has enough answers to name, the same hour of a challenger names as well.
        left = dict(sorted(summed.items(), key=lambda item: by_id[item[0]].role is not Role.CHAMPION))
        for _ in range(HOURS_AT_ONCE):
            version_id, since = min(left.items(), key=lambda item: item[1], default=(0, until))
            if since >= until or windows_read >= WINDOWS_AT_ONCE:
                break
            del left[version_id]
            with _kept_apart(by_id[version_id].model_name, failures):
                alike = [one for one in versions if one.model_name == by_id[version_id].model_name]
                windows_read += await self._sum_hour(by_id[version_id], alike, since, epoch)
                summed[version_id] = left[version_id] = since + HOUR_SECONDS
        return summed, windows_read

    async def _sum_hour(
        self, version: ActiveVersion, alike: Sequence[ActiveVersion], since: float, epoch: Epoch
    ) -> int:
        """Sum up an hour of a version, and return how many windows that took, its inputs converted to windows."""
        windows = await self._windows.of_versions([version.id], since, since + HOUR_SECONDS)
        hours = {PREDICTION: await asyncio.to_thread(prediction_hour, since, windows)}
        watched = await self._watched_inputs(version)
        values = 0
        if watched:
            samples = await self._store.input_samples(version.id, since, rows_of_hour(len(watched)))
            hours |= await asyncio.to_thread(input_hours, since, samples, watched)
            values = len(samples) * len(watched)
        if version.has_classes:
            answered = await self._store.answered_classes(version.id, since, MAX_CLASSES_READ)
            known = await self._class_names.of(version.model_name, alike, since)
            hours[CLASSES] = await asyncio.to_thread(class_hour, since, answered, known)
            self._class_names.add(version.model_name, hours[CLASSES])
            values += len(answered)
        await self._store.add_hours(version.id, hours, epoch=epoch)
        return len(windows) + values // VALUES_PER_WINDOW

    async def _watched_inputs(self, version: ActiveVersion) -> Mapping[str, Baseline]:
        """Return the baselines of the inputs that are looked at, read once for each state of the version's metrics."""
        digest, watched = self._watched.get(version.id, ("", {}))
        if digest != version.metrics_digest:
            facts = await self._store.drift_facts(version.id, 0.0, [])
            watched = judged_inputs(facts.metrics)
            self._watched[version.id] = version.metrics_digest, watched
        return watched

    async def _follow(self, versions: Sequence[ActiveVersion], now: float, until: float, epoch: Epoch) -> bool:
        """Judge the next version of a model, and tell of the model after the last one; ``False``: nothing to do."""
        stale = [one for one in versions if not self._is_judged(one, until)]
        if stale:
            await self._judge(stale[0], until)
        if len(stale) > 1 or not all(self._is_judged(one, until) for one in stale):
            return True
        model_name = versions[0].model_name
        basis = (until, tuple((one.id, one.role, one.metrics_digest) for one in versions))
        if self._told.get(model_name) != basis:
            await self._tell(versions, now, until, epoch)
            self._told[model_name] = basis
            return True
        return bool(stale)

    def _begin_round(self, model_name: str, until: float) -> float:
        """Return the hour as of whose end a model is judged: one that was begun is finished before a later one."""
        as_of = self._rounds.get(model_name, until)
        if self._told_until(model_name) >= as_of or until - as_of > MAX_ROUND_SECONDS:
            as_of = until
        self._rounds[model_name] = as_of
        return as_of

    def _told_until(self, model_name: str) -> float:
        until, _ = self._told.get(model_name, (0.0, ()))
        return until

    def _is_judged(self, version: ActiveVersion, until: float) -> bool:
        judgement = self._judged.get(version.id)
        return judgement is not None and judgement.facts == (until, version.metrics_digest) and not judgement.left

    async def _judge(self, version: ActiveVersion, until: float) -> None:
        """Judge the next subjects of a version; they are shown when it was the last of them."""
        judgement = self._judged.get(version.id)
        if judgement is None or judgement.facts != (until, version.metrics_digest):
            answers = OF_ANSWERS if version.has_classes else (PREDICTION,)
            subjects = [*answers, *map(input_subject, await self._watched_inputs(version))]
            judgement = self._judged[version.id] = _Judgement((until, version.metrics_digest), subjects)
        hours_read = 0
        for subject in judgement.left[:SUBJECTS_AT_ONCE]:
            facts = await self._store.drift_facts(version.id, until - KEPT_SECONDS, [subject])
            judgement.drifts += await asyncio.to_thread(
                partial(judge_version, facts.metrics, facts.hours, until, only={subject})
            )
            judgement.left.remove(subject)
            hours_read += len(facts.hours.get(subject, ()))
            if hours_read >= SUBJECT_HOURS_AT_ONCE:
                break
        if not judgement.left:
            self._show(version, judgement.drifts)

    async def _tell(self, versions: Sequence[ActiveVersion], now: float, until: float, epoch: Epoch) -> None:
        found = model_drift({one.version: self._judged[one.id].drifts for one in versions})
        values = [value for one in versions for value in metric_values(one.id, self._judged[one.id].drifts, until)]
        event = drift_event(versions, found, self._environment, now)
        event = await self._with_changes(event, versions, found)
        if await self._store.tell_drift(values, event, epoch=epoch):
            _log.info("drift.told", model=event.model_name, action=event.action.value, summary=event.summary)

    async def _with_changes(
        self, event: AlertEvent, versions: Sequence[ActiveVersion], found: ModelDrift
    ) -> AlertEvent:
        """Return an alert about a champion with what changed around it: no other version tells what it should be."""
        champions = [one.version for one in versions if one.role is Role.CHAMPION]
        if self._changes is None or event.action is not AlertAction.TRIGGER or not found.drifting(champions):
            return event
        try:
            changed = (await self._changes.recent(versions[0].model_name)).to_json()
        except RegistryError as problem:  # the alert is worth more than what it says beside
            _log.warning("drift.changes_unknown", model=versions[0].model_name, problem=problem.detail)
            return event
        return replace(event, details={**event.details, "changed_within_an_hour": changed})

    def _show(self, version: ActiveVersion, drifts: Sequence[Drift]) -> None:
        """Set the gauges of a version, and drop those of what is not measured any more."""
        shown: set[tuple[str, ...]] = set()
        for drift in drifts:
            for reading in drift.readings:
                labels = (version.model_name, version.version, drift.subject, reading.measure.value)
                self._telemetry.set("drift_score", reading.distance, *labels)
                self._telemetry.set("drift_threshold", reading.limit, *labels)
                shown.add(labels)
        self._drop(self._shown.get(version.id, set()) - shown)
        self._shown[version.id] = shown

    def _drop(self, gone: set[tuple[str, ...]]) -> None:
        for labels in gone:
            self._telemetry.forget("drift_score", *labels)
            self._telemetry.forget("drift_threshold", *labels)

    async def _end_gone(self, versions: Sequence[ActiveVersion], now: float, epoch: Epoch) -> None:
        """End the incidents of models without an active version: no round would judge them again."""
        told = set(self._told)
        if self._asked_in != epoch:
            told |= set(await self._store.open_incidents(AlertKind.DRIFT, self._environment))
        for model_name in told - {version.model_name for version in versions}:
            summary = f"{model_name}: no version of it is active any more"
            event = AlertEvent(AlertAction.RESOLVE, AlertKind.DRIFT, self._environment, model_name, summary, now, {})
            await self._store.tell_drift([], event, epoch=epoch)
        self._asked_in = epoch

    def _forget_inactive(self, versions: Sequence[ActiveVersion]) -> None:
        ids, models = {version.id for version in versions}, {version.model_name for version in versions}
        self._judged = {key: kept for key, kept in self._judged.items() if key in ids}
        self._watched = {key: kept for key, kept in self._watched.items() if key in ids}
        self._told = {name: basis for name, basis in self._told.items() if name in models}
        self._rounds = {name: as_of for name, as_of in self._rounds.items() if name in models}
        self._class_names.forget_others(versions)
        for version_id in self._shown.keys() - ids:
            self._drop(self._shown.pop(version_id))


@contextmanager
def _kept_apart(model_name: str, failures: list[Exception]) -> Iterator[None]:
    """Gather a failure instead of raising it; only a lost leadership goes further."""
    try:
        yield
    except LeadershipLost:
        raise
    except Exception as problem:  # noqa: BLE001 - figures that cannot be read, of one version among many
        _log.warning("drift.not_looked_at", model=model_name, problem=f"{type(problem).__name__}: {problem}")
        failures.append(problem)


def metric_values(version_id: int, drifts: Sequence[Drift], until: float) -> list[MetricValue]:
    """Return the rows of ``PredictionMetric`` of a version's drift.

    ``drift_state`` is 1 for a drift and 0 for none, and is missing while neither is proven; each measure is
    ``drift_mean``, ``drift_psi`` and so on. Those of an input end in its name: ``drift_psi/country``.
    """
    values = []
    for drift in drifts:
        if drift.state in (DriftState.DRIFT, DriftState.OK):
            named = {"drift_state": float(drift.state is DriftState.DRIFT)}
            named |= {f"drift_{reading.measure}": reading.distance for reading in drift.readings}
            values += [
                MetricValue(version_id, _metric_name(name, drift.subject), value, until)
                for name, value in named.items()
            ]
    return values


def drift_event(versions: Sequence[ActiveVersion], found: ModelDrift, environment: str, now: float) -> AlertEvent:
    """Return the event of a model: a drift of a version that answers, or that there is none.

    A shadow that drifts is in the report and causes no alert: no caller gets its answers.
    """
    model_name = versions[0].model_name
    drifting = found.drifting(one.version for one in versions if one.role not in (Role.SHADOW, None))
    details = {
        "drifts": [_details(version, drift) for version, drifts in drifting.items() for drift in drifts],
        "shared": list(found.shared),
        "next": f"understudy drift report {quote(model_name)}",
    }
    if drifting:
        version, drifts = next(iter(drifting.items()))
        summary = " ".join([f"{model_name} v{version} drifts: {drifts[0].words}", *found.shared])
    else:
        summary = f"{model_name}: no version that answers is known to drift any more"
    action = AlertAction.TRIGGER if drifting else AlertAction.RESOLVE
    return AlertEvent(action, AlertKind.DRIFT, environment, model_name, summary, now, details)


def _details(version: str, drift: Drift) -> dict[str, object]:
    return {
        "version": version,
        "subject": drift.subject,
        "since": drift.since_seconds,
        "rows": drift.rows,
        "words": drift.words,
        "readings": [reading._asdict() for reading in drift.readings],
    }


def _summed_until(version: ActiveVersion, until: float) -> float:
    if version.summed_until is None:
        return until - FIRST_SECONDS
    return max(version.summed_until, until - MAX_SECONDS)


def _metric_name(name: str, subject: str) -> str:
    if subject == PREDICTION:
        return name
    full = f"{name}/{subject}"
    if len(full) <= _NAME_CHARACTERS:
        return full
    digest = sha256(subject.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{full[: _NAME_CHARACTERS - len(digest) - 1]}~{digest}"
