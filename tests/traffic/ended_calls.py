"""Calls that have ended, for tests of what becomes of their rows."""

from builders import a_policy

from traffic.spooled_rows import a_prediction_id, a_row
from understudy.core.requests.predict import PredictRequest
from understudy.core.routing.policy import Role
from understudy.core.routing.route import choose_route
from understudy.core.schema.outputs import Prediction
from understudy.serving.call import Asked, Call


def an_ended(number: int, *, role: Role = Role.CHAMPION, has_row: bool = True) -> Call:
    """Return a call that was answered well, whose prediction id and row have this number."""
    policy, request = a_policy(), PredictRequest("customer-1", {})
    return Call(
        prediction_id=a_prediction_id(number),
        policy=policy,
        route=choose_route(policy, "customer-1"),
        request=request,
        asked=Asked("visits", request, None, None, None),
        version=policy.champion,
        role=role,
        budget_seconds=1.0,
        caller_seconds=None,
        may_fall_back=False,
        wanted=(),
        started=0.0,
        ends=1.0,
        prediction=Prediction(b'{"score":0.5}', 0.5),
        log_row=a_row(number) if has_row else None,
    )


def number_of(call: Call) -> int:
    """Return the number that a call was made with."""
    return next(number for number in range(10) if a_prediction_id(number) == call.prediction_id)
