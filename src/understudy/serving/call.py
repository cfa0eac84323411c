"""A call: what its handler gives, and the one object that goes with it from its route to its answer."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from understudy.core.prediction_log.row import PredictionRow
from understudy.core.requests.predict import PredictRequest, TypedRequest
from understudy.core.requests.rank import AssembledTreatments, Ranking, RankRequest
from understudy.core.routing.policy import ModelVersion, Role, ServingPolicy
from understudy.core.routing.route import Route
from understudy.core.schema.outputs import Prediction
from understudy.core.schema.schema import Assembled
from understudy.core.value import Slotted
from understudy.errors import FeaturesUnavailable, NotLogged, UnderstudyError
from understudy.ports.telemetry.tracing import Span
from understudy.serving.upstream.cached_inference import CacheResult
from understudy.serving.upstream.row_deadlines import WaitingRow

Request: TypeAlias = PredictRequest | TypedRequest | RankRequest
UNREAD = PredictRequest("", {})
"""The request of a call whose body is read with those of its turn."""


class Asked(Slotted):
    """A call as its handler gives it: what is asked of which model; it takes the answer.

    ``timeout_seconds`` is the caller's own limit; the version's limit holds if it is shorter. ``forced_version`` is the
    label of a version that answers instead of the route's; the handler checks the caller's scope. ``span`` is the
    call's own, while tracing is on.
    """

    keeps_output: ClassVar[bool] = False
    """Whether the prediction has the model server's own output with it; a kind of call says so."""
    model_name: str
    request: Request
    timeout_seconds: float | None
    forced_version: str | None
    span: Span | None

    def on_result(self, found: "Call | Exception") -> None:
        """Take the call that has ended, or what left it without a route, or a defect. Called once; raises nothing."""
        raise NotImplementedError


class Call(WaitingRow):
    """One call at one version, filled in place: the receipt is there for errors, too. Its times are monotonic seconds.

    It is a row of the version's batch while that is asked, until its ``deadline``. A shadow's call is one of its own,
    as is the champion's after a challenger that failed; both are made from the call before, and have its route.
    """

    prediction_id: str
    policy: ServingPolicy
    route: Route
    request: Request
    asked: Asked
    """Takes the answer."""
    version: ModelVersion
    """The version that is asked."""
    role: Role
    """Whose answer it is: the route's, after a fallback the champion's."""
    budget_seconds: float
    caller_seconds: float | None
    """The limit that the caller gave it, whatever the version's own is; a long body leaves less of its time."""
    may_fall_back: bool
    """Whether the champion answers if the version fails."""
    wanted: Sequence[str]
    """The stored features that it may need."""
    started: float
    ends: float
    """When the time of the call is over, its fallback included."""
    routed: float = 0.0
    ready: float = 0.0
    """When its stored features were there, and the version could be asked."""
    waited: float = 0.0
    """Seconds until its long inputs were assembled: no version's time, and in none's latency."""
    stored: Mapping[str, Any] | None = None
    """What the feature store had, ``None`` if it was not asked or failed."""
    feature_error: FeaturesUnavailable | None = None
    assembled: Assembled | AssembledTreatments | None = None
    prediction: Prediction | Ranking | None = None
    error: UnderstudyError | None = None
    """Why there is no prediction."""
    cache: CacheResult = CacheResult.BYPASS
    failed: "Call | None" = None
    """The challenger's call that failed before the champion was asked."""
    log_row: PredictionRow | None = None
    """``None`` for a call that leaves none, or whose row is not on the disk."""
    defect: Exception | None = None
    """What kept the row from being written, where that is a defect: the caller is told that instead."""

    def has_waited(self, since: float, until: float) -> None:
        """Note a wait that its caller's long body caused; what is left counts as the deadline that its caller gave."""
        self.ready, left = until, max(0.0, self.ends - until)
        self.waited += until - since
        self.caller_seconds = left if self.caller_seconds is None else min(left, self.caller_seconds)

    @property
    def fallback_from(self) -> UnderstudyError | None:
        """The challenger's failure, when the champion answered for it."""
        return None if self.failed is None else self.failed.error


def refuse_unlogged(call: Call) -> None:
    """Take back the answer of a call whose row was not written, where no call is answered without its row."""
    if call.error is None:
        call.prediction, call.error = None, NotLogged()
