"""Rollouts: plan, state, verdicts, what was done."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from understudy.core.alerts.alerts import AlertEvent
from understudy.core.canary.decision import Verdict
from understudy.core.canary.judge_limits import BudgetStop, JudgeLimit
from understudy.core.canary.judgement_records import JudgeOutcome, JudgeQuestion, JudgeRecord
from understudy.core.canary.latency.champion_before import ChampionBefore
from understudy.core.canary.metric_samples import MetricPoint
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import RolloutPlan
from understudy.core.rollout.state import DriftMode, GuardMode, RolloutState, Transition
from understudy.core.routing.proxy_liveness import NONE_STALE, StaleProxies
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.registry.registry import Actor

MONITOR = "monitor"
"""Who acts in events that no operator asked for."""
VIA_ROLLOUT = "rollout"
"""What the audit says that a change by a rollout or a guard came by."""
VIA_CONSOLE = "console"
"""The same of what a person did in the console: a command to a rollout, too."""


class NewRollout(NamedTuple):
    """A rollout to be started. ``salt`` is what the policy hashes meanwhile, ``None`` for the model's name."""

    model_name: str
    challenger: str
    plan: RolloutPlan
    salt: str | None
    slow_us: int | None
    """The champion's 95th percentile of late, in microseconds; ``None`` while it is not known."""


class RolloutRecord(NamedTuple):
    """A rollout. Times are seconds since the epoch."""

    id: int
    state: RolloutState
    revision: int
    """Grows with each change of the state."""
    champion_id: int
    challenger_id: int
    salt: str | None
    slow_us: int | None
    reason: str | None
    started_by: str
    finished_at: float | None
    announced_at: float | None
    guard_id: int | None = None
    """Of a version that is watched as one of several beside further arms: what their guard, and its calls, go by."""

    @property
    def split_id(self) -> int:
        """What the calls of its split are logged under."""
        return self.id if self.guard_id is None else self.guard_id


class UnreadableRollout(NamedTuple):
    """A rollout whose plan or state this release cannot read: what its row says all the same."""

    id: int
    kind: str
    model_name: str
    phase: str
    started_at: float
    """Seconds since the epoch."""
    started_by: str
    problem: str
    """A sentence that names the rollout and what is wrong."""


class RolloutView(NamedTuple):
    """A rollout and what it acts on, read at one moment."""

    record: RolloutRecord
    policy: PolicySeen | None
    weights_percent: Mapping[int, float]
    """The challenger's weight under each generation of the policy that belonged to the rollout; beside further arms of
    what it and the champion have together."""
    proxies: int
    """Live ones: see ``core.routing.proxy_liveness``."""
    proxies_on_generation: int
    in_flight: Mapping[int, int]
    """Calls under way by version id, over all live proxies, as of their last reports."""
    read_at: float
    """By Postgres' clock."""
    stale: StaleProxies = NONE_STALE
    """Those that had not confirmed the policy's generation."""
    all_stale: StaleProxies = NONE_STALE
    """Those that had as well: none of them has confirmed what is changed next."""
    guard: GuardMode = GuardMode.ROLLBACK
    """What a guard may do: as the policy says, and at most ``ALERT`` while a declared test of the model is open."""
    champion_before: ChampionBefore = ChampionBefore()
    """What the champion did in the hour before; the store leaves it out."""
    proxies_hidden: bool = False
    """Whether the reports of proxies could not be read, since a session keeps their table locked: then none is live."""
    champion_percent: int | None = None
    """What the champion has, further arms taken off; ``None``: it is not told, and all that the challenger leaves."""
    on_drift: DriftMode = DriftMode.ALERT
    """What a challenger that drifts leads to: as the policy says, ``ALERT`` while a declared test is open."""
    unvalidated: str = ""
    """Why a challenger that requires a validation has none that holds; empty: it has, or it requires none."""
    shares: Mapping[str, int] = {}
    """What each version beside the champion has, in percent, the challenger first and then further arms; a control
    plane over HTTP leaves it out."""


class RecordSeen(NamedTuple):
    """A rollout by itself, read at a moment of Postgres' clock."""

    record: RolloutRecord
    read_at: float


class NewRolloutEvent(NamedTuple):
    """What is written down with a transition; ``inputs`` is all that the verdict rests on."""

    actor: str
    verdict: Verdict | None = None
    evidence: Sequence[Mapping[str, Any]] = ()
    inputs: Mapping[str, Any] = {}
    thresholds: Mapping[str, Any] = {}
    via: str = VIA_ROLLOUT
    """What the audit says that the change of the policy came by."""


class RolloutEventRecord(NamedTuple):
    """One thing that happened to a rollout."""

    id: int
    at: float
    step: int
    phase: str
    verdict: Verdict | None
    reason: str
    evidence: Sequence[Mapping[str, Any]]
    inputs: Mapping[str, Any]
    thresholds: Mapping[str, Any]
    code_version: str
    actor: str
    damage: str = ""
    """Why something of it cannot be read, and is left out; empty for an event that can be."""


class RolloutAct(NamedTuple):
    """What a person did to a rollout without a change of the policy: a pause, a resume, an approval."""

    id: int
    rollout_id: int
    at: datetime
    reason: str
    actor: str


class RolloutActFilter(NamedTuple):
    """Which of them are asked for; ``None``: whatever it is."""

    actor: str | None = None
    since: datetime | None = None
    before_id: int | None = None
    """Only older ones."""


EVERY_ACT = RolloutActFilter()


class PolicyReach(NamedTuple):
    """How far a model's policy has come, read at one moment."""

    generation: int
    proxies: int
    """Live ones: see ``core.routing.proxy_liveness``."""
    proxies_on_generation: int
    in_flight: Mapping[int, int]
    """Calls under way by version id, over all live proxies, as of their last reports."""
    monitor_seconds: float | None
    """Since a monitor that leads last said so; ``None`` if none ever did."""
    read_at: float
    """By Postgres' clock."""
    stale: StaleProxies = NONE_STALE
    """Those that had not confirmed the generation that is asked about."""
    proxies_hidden: bool = False
    """As in :class:`RolloutView`."""


class RollbackRecord(NamedTuple):
    """What a rollback by hand did: ``weight 0`` (and more), ``previous champion back``, or nothing and why."""

    model_name: str
    did: str
    generation: int
    champion: str
    challenger: str | None
    rollout_id: int | None
    without_calls: tuple[int, ...] = ()
    """Ids of the model's versions that get none any more."""

    @property
    def changed(self) -> bool:
        """Whether traffic was moved."""
        return not self.did.startswith("nothing")


class NewQuestion(NamedTuple):
    """A question that a judge is to be asked about a pair of answers."""

    pair: str
    is_challenger_first: bool
    entity_bucket: int
    prediction_id: str


class RolloutListing(Protocol):
    """Rollouts as a list; raises ``RegistryUnavailable`` and ``MigrationNeeded``."""

    async def listing(
        self, model_name: str | None = None, limit: int = 20
    ) -> Sequence[RolloutRecord | UnreadableRollout]:
        """Return the newest rollouts, of one model or of all, newest first; also what this release cannot read."""


class Rollbacks(Protocol):
    """Rollbacks by hand, and how far a policy has come; raises ``RegistryUnavailable`` and ``MigrationNeeded``."""

    async def roll_back(self, model_name: str, actor: Actor, *, dry_run: bool = False) -> RollbackRecord:
        """Send all traffic back at once, whatever rollout there is or is not; doing it again changes nothing.

        Args:
            model_name: The model.
            actor: Who asks, and why.
            dry_run: Only say what it would do.

        Raises:
            PolicyRefused: The model has no policy.
        """

    async def reach(self, model_name: str, generation: int | None = None) -> PolicyReach:
        """Return how many live proxies act on a model's policy, which are stale, and whether a monitor looks at it.

        Args:
            model_name: The model.
            generation: Proxies count that act on this generation or a later one; ``None`` for the newest.

        Raises:
            NotRegistered: The model has no policy.
        """


class RolloutStore(RolloutListing, Rollbacks, Protocol):
    """Rollouts, their events, and the one way in which they change a policy.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``; writes with an epoch also ``LeadershipLost``.
    """

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which all calls share a connection, which is cheaper where there are many."""

    async def start(self, new: NewRollout, actor: Actor, *, expected_generation: int | None = None) -> RolloutRecord:
        """Give the challenger its role at weight 0 and begin a rollout of it, in one transaction.

        Raises:
            NotRegistered: The model has no policy, or no such version.
            GenerationMoved: The policy is not at ``expected_generation``.
            PolicyRefused: The model has an open rollout, or the database refuses the version.
        """

    async def watch_splits(self, *, epoch: Epoch | None = None) -> Sequence[str]:
        """Open the guards that are missing and return their models: of splits from before there were guards."""

    async def open_ids(self) -> Sequence[int]:
        """Return the rollouts that are not over, or whose end was not announced, oldest first."""

    async def guard_ids(self) -> Sequence[int]:
        """Return the guards that are not over, oldest first."""

    async def latest_id(self, model_name: str) -> int:
        """Return a model's newest rollout.

        Raises:
            NotRegistered: It never had one.
        """

    async def view(self, rollout_id: int) -> RolloutView:
        """Return a rollout with what it acts on.

        Raises:
            NotRegistered: There is no such rollout.
        """

    async def record(self, rollout_id: int) -> RecordSeen:
        """Return a rollout without what it acts on: in one statement instead of nine.

        Raises:
            NotRegistered: There is no such rollout.
        """

    async def list(self, model_name: str | None = None, limit: int = 20) -> Sequence[RolloutRecord]:
        """Return the newest rollouts, of one model or of all, newest first.

        Raises:
            MigrationNeeded: A newer release wrote one of them; :meth:`listing` says of each.
        """

    async def policies(self, model_names: Sequence[str]) -> Mapping[str, PolicySeen]:
        """Return the policies of models by their names, of those that have one."""

    async def events(self, rollout_id: int) -> Sequence[RolloutEventRecord]:
        """Return what happened to a rollout, oldest first."""

    async def acts(self, model_name: str, limit: int, only: RolloutActFilter = EVERY_ACT) -> Sequence[RolloutAct]:
        """Return what people did to rollouts of a model that changed no policy, newest first.

        What changed one is in the audit of policies.
        """

    async def apply(
        self,
        view: RolloutView,
        transition: Transition,
        event: NewRolloutEvent,
        alerts: Sequence[AlertEvent] = (),
        *,
        epoch: Epoch | None = None,
    ) -> bool:
        """Carry out a transition whole, in one transaction: policy, versions, state, event and alerts.

        Returns:
            Whether it was; ``False`` when the rollout or the policy is no longer what the transition was decided on.
        """

    async def set_slow_us(self, rollout_id: int, slow_us: int, *, epoch: Epoch | None = None) -> None:
        """Set the threshold of a slow call, where there is none yet."""

    async def metric_points(self, record: RolloutRecord, since: float) -> Sequence[MetricPoint]:
        """Return what is stored of a rollout's own metrics from a moment on, in whatever order."""

    async def add_metric_points(
        self, record: RolloutRecord, points: Sequence[MetricPoint], *, epoch: Epoch | None = None
    ) -> None:
        """Store values of a rollout's own metrics; one of the same minute is replaced."""

    async def judge_record(self, record: RolloutRecord) -> JudgeRecord:
        """Return all that is stored of what a rollout's judge was asked."""

    async def judge_budget(self, record: RolloutRecord, limit: JudgeLimit) -> BudgetStop | None:
        """Return why a rollout's judge may not be asked now; ``None`` where it may."""

    async def reserve_question(
        self, record: RolloutRecord, limit: JudgeLimit, new: NewQuestion, *, epoch: Epoch | None = None
    ) -> JudgeQuestion | BudgetStop:
        """Store a question with its cost before it is asked, where the budget has room for it.

        The budget is the model's with this judge, over all its rollouts and whichever monitor asks.

        Raises:
            LeadershipLost: Another monitor leads, and asks.
        """

    async def add_tie(
        self, record: RolloutRecord, limit: JudgeLimit, new: NewQuestion, *, epoch: Epoch | None = None
    ) -> JudgeQuestion | None:
        """Store that a pair's answers are equal, at no cost; ``None`` where it is known, or there is no room."""

    async def settle_question(
        self, question_id: int, outcome: JudgeOutcome, difference: float | None, *, epoch: Epoch | None = None
    ) -> float | None:
        """Store what came of a question, and return when; ``None`` where that is known already."""

    async def set_judge_idle(
        self, record: RolloutRecord, limit: JudgeLimit, idle: JudgeOutcome | None, *, epoch: Epoch | None = None
    ) -> None:
        """Store why there is nothing to ask, or that there is."""

    async def announce(
        self, view: RolloutView, reason: str, event: NewRolloutEvent, *, epoch: Epoch | None = None
    ) -> None:
        """Write down whether every live proxy has confirmed the end, in the words of ``reason``; once."""

    async def tell(self, alerts: Sequence[AlertEvent], *, epoch: Epoch | None = None) -> None:
        """Keep alerts that belong to no transition; one that resolves an incident that is not open is dropped."""
