"""A call as values: what it asks, how its route was decided, what one version made of it, and its outcome."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from understudy.core.requests.predict import PredictRequest, TypedRequest
from understudy.core.requests.rank import AssembledTreatments, Ranking, RankRequest
from understudy.core.routing.policy import ModelVersion, Role, ServingPolicy
from understudy.core.routing.route import Route
from understudy.core.schema.outputs import Prediction
from understudy.core.schema.schema import Assembled
from understudy.core.value import Value
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


def not_logged(outcome: Outcome) -> Outcome:
    """Return the outcome of a call whose row was not written, where no call is answered without its row."""
    served = outcome.served
    if served.error is not None:
        return outcome
    return outcome.but(served=served.but(prediction=None, error=NotLogged()))


class Call(Value, frozen=True):
    """One call under way: when it began, when its route was known and when it ends, in monotonic seconds.

    ``stored`` is what the feature store had, ``None`` if it was not asked or failed. ``span`` is the call's own, while
    tracing is on. ``caller_seconds`` is the limit that the caller gave it, whatever the version's own is.
    """

    prediction_id: str
    policy: ServingPolicy
    route: Route
    request: Request
    started: float
    routed: float
    deadline: float
    budget_seconds: float
    stored: Mapping[str, Any] | None = None
    feature_error: FeaturesUnavailable | None = None
    span: Span | None = None
    caller_seconds: float | None = None
