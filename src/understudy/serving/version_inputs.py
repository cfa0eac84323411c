"""A version's inputs of a call, or what is wrong with them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from understudy.core.requests.rank import AssembledTreatments
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.schema import Assembled
from understudy.core.schema.stored_features import assemble_without_unfit
from understudy.errors import DeadlineExceeded, FeaturesUnavailable, InputInvalid, ServingError, UnderstudyError
from understudy.serving.call import Call, Served


def assembled_for(call: Call) -> Assembled | AssembledTreatments | Served:
    """Return the inputs of the version that is asked, or what it makes of a call without them."""
    version = call.version
    try:
        return call.request.assemble(version, call.stored)
    except InputInvalid as problem:
        if call.stored:
            return _without_unfit(call, version, call.stored, problem)
        return Served(version, None, None, _blame(problem, version, call.feature_error).as_value())


def failure_of(call: Call, problem: ServingError) -> Served:
    """Return what a version made of a call when asking it ended in ``problem``."""
    error = problem.as_value()
    if isinstance(error, DeadlineExceeded):
        error = DeadlineExceeded(error.stage, call.budget_seconds)
    return Served(call.version, call.assembled, None, error)


def _without_unfit(
    call: Call, version: ModelVersion, stored: Mapping[str, Any], problem: InputInvalid
) -> Assembled | AssembledTreatments | Served:
    """Return what is assembled without the stored values that do not fit, which are not the caller's to correct."""
    request = call.request
    assemble: Callable[[Mapping[str, Any]], Assembled | AssembledTreatments] = partial(request.assemble, version)
    try:
        return assemble_without_unfit(assemble, request.inputs, stored, problem)
    except (InputInvalid, FeaturesUnavailable) as refused:
        return Served(version, None, None, refused.as_value())


def _blame(problem: InputInvalid, version: ModelVersion, feature_error: FeaturesUnavailable | None) -> UnderstudyError:
    """Return the store's failure where it alone left the inputs incomplete: that is not the caller's fault."""
    if feature_error is None:
        return problem
    stored = {f"/inputs/{name}" for name in version.input_schema.stored_names}
    if all(violation.pointer in stored and violation.detail.startswith("missing") for violation in problem.violations):
        return feature_error
    return problem
