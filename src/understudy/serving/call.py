"""A call as values: what it asks, how its route was decided, what one version made of it, and its outcome."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from understudy.core.prediction_log.row import PredictionRow
from understudy.core.requests.predict import PredictRequest, TypedRequest
from understudy.core.requests.rank import AssembledTreatments, Ranking, RankRequest
from understudy.core.routing.policy import ModelVersion, Role, ServingPolicy
from understudy.core.routing.route import Route
from understudy.core.schema.outputs import Prediction
from understudy.core.schema.schema import Assembled
from understudy.core.value import Slotted, Value
from understudy.errors import FeaturesUnavailable, NotLogged, UnderstudyError
from understudy.ports.telemetry.tracing import Span
from understudy.serving.upstream.cached_inference import CacheResult

Request: TypeAlias = PredictRequest | TypedRequest | RankRequest


class Served(Value, frozen=True):
    """What one version made of a call: a prediction, or why there is none.

    ``seconds`` is what the attempt took, known of a challenger that failed.
    """

    version: ModelVersion
    assembled: Assembled | AssembledTreatments | None
    prediction: Prediction | Ranking | None
    error: UnderstudyError | None
    cache: CacheResult = CacheResult.BYPASS
    seconds: float = 0.0


class Stages(Value, frozen=True, gc=False):
    """How long the stages of a call took, in seconds."""

    route: float
    features: float
    upstream: float


class Outcome(Value, frozen=True):
    """Everything a handler needs to answer: the receipt is there for errors too.

    ``fallback_from`` is the challenger's failure when the champion answered for it.
    """

    prediction_id: str
    route: Route
    served: Served
    role: Role
    generation: int
    fallback_from: UnderstudyError | None
    seconds: Stages


OnResult: TypeAlias = Callable[[Outcome | Exception], None]
"""Takes a call's outcome, or what left it without one: no route, or a defect. Called once; must not raise."""


class Asked(Value, frozen=True):
    """A call as its handler gives it: what is asked of which model, and who takes the outcome.

    ``timeout_seconds`` is the caller's own limit; the version's limit holds if it is shorter. ``forced_version`` is the
    label of a version that answers instead of the route's; the handler checks the caller's scope. ``span`` is the
    call's own, while tracing is on.
    """

    model_name: str
    request: Request
    on_result: OnResult
    timeout_seconds: float | None = None
    forced_version: str | None = None
    span: Span | None = None


class Call(Slotted):
    """One call under way, filled in place; its times are monotonic seconds.

    A shadow's call is one of its own, with a route that is its caller's.
    """

    prediction_id: str
    policy: ServingPolicy
    route: Route
    request: Request
    on_result: OnResult
    started: float
    routed: float
    deadline: float
    budget_seconds: float
    caller_seconds: float | None
    """The limit that the caller gave it, whatever the version's own is."""
    span: Span | None
    version: ModelVersion
    """Who is asked now."""
    until: float
    """When that version's time is over."""
    asked: float
    """When its stored features were there, and the version could be asked."""
    role: Role
    """Whose answer it is: the route's, after a fallback the champion's."""
    may_fall_back: bool
    """Whether the champion answers if the version fails."""
    wanted: Sequence[str] = ()
    """The stored features that it may need."""
    stored: Mapping[str, Any] | None = None
    """What the feature store had, ``None`` if it was not asked or failed."""
    feature_error: FeaturesUnavailable | None = None
    assembled: Assembled | AssembledTreatments | None = None
    failed: Served | None = None
    """What a challenger made of the call before the champion answered for it."""


class Ended(Slotted):
    """A call that has ended: its row is written, and then its outcome given to its caller."""

    call: Call
    outcome: Outcome
    row: PredictionRow | None
    """``None`` for a call that leaves none, or whose row is not on the disk."""
    defect: Exception | None = None
    """What kept the row from being written, where that is a defect: the caller is told that instead."""


def not_logged(outcome: Outcome) -> Outcome:
    """Return the outcome of a call whose row was not written, where no call is answered without its row."""
    served = outcome.served
    if served.error is not None:
        return outcome
    return outcome.but(served=served.but(prediction=None, error=NotLogged()))
