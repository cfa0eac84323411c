"""Calls that have ended, for tests of what becomes of their rows."""

from builders import a_policy
from spooled_rows import a_prediction_id, a_row

from understudy.core.requests.predict import PredictRequest
from understudy.core.routing.policy import Role
from understudy.core.routing.route import choose_route
from understudy.core.schema.outputs import Prediction
from understudy.serving.call import Call, Ended, Outcome, Served, Stages


def an_ended(number: int, *, role: Role = Role.CHAMPION, has_row: bool = True) -> Ended:
    """Return a call that was answered well, whose prediction id and row have this number."""
    policy = a_policy()
    version, route = policy.champion, choose_route(policy, "customer-1")
    call = Call(
        prediction_id=a_prediction_id(number),
        policy=policy,
        route=route,
        request=PredictRequest("customer-1", {}),
        on_result=lambda _found: None,
        started=0.0,
        routed=0.0,
        deadline=1.0,
        budget_seconds=1.0,
        caller_seconds=None,
        span=None,
        version=version,
        until=1.0,
        asked=0.0,
        role=role,
        may_fall_back=False,
    )
    served = Served(version, None, Prediction(b'{"score":0.5}', 0.5), None)
    outcome = Outcome(call.prediction_id, route, served, role, 1, None, Stages(0.0, 0.0, 0.0))
    return Ended(call, outcome, a_row(number) if has_row else None)


def number_of(one: Ended) -> int:
    """Return the number that a call was made with."""
    return next(number for number in range(10) if a_prediction_id(number) == one.call.prediction_id)
