"""A version's inputs of a call, or what is wrong with them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from understudy.core.requests.rank import AssembledTreatments
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.schema import Assembled
from understudy.core.schema.stored_features import assemble_without_unfit
from understudy.errors import FeaturesUnavailable, InputInvalid, UnderstudyError
from understudy.serving.call import Call


def assembled_for(call: Call) -> Assembled | AssembledTreatments | UnderstudyError:
    """Return the inputs of the version that is asked, or why there are none."""
    version = call.version
    try:
        return call.request.assemble(version, call.stored)
    except InputInvalid as problem:
        if call.stored:
            return _without_unfit(call, version, call.stored, problem)
        return _blame(problem, version, call.feature_error).as_value()


def _without_unfit(
    call: Call, version: ModelVersion, stored: Mapping[str, Any], problem: InputInvalid
) -> Assembled | AssembledTreatments | UnderstudyError:
    """Return what is assembled without the stored values that do not fit, which are not the caller's to correct."""
    request = call.request
    assemble: Callable[[Mapping[str, Any]], Assembled | AssembledTreatments] = partial(request.assemble, version)
    try:
        return assemble_without_unfit(assemble, request.inputs, stored, problem)
    except (InputInvalid, FeaturesUnavailable) as refused:
        return refused.as_value()


def _blame(problem: InputInvalid, version: ModelVersion, feature_error: FeaturesUnavailable | None) -> UnderstudyError:
    """Return the store's failure where it alone left the inputs incomplete: that is not the caller's fault."""
    if feature_error is None:
        return problem
    stored = {f"/inputs/{name}" for name in version.input_schema.stored_names}
    if all(violation.pointer in stored and violation.detail.startswith("missing") for violation in problem.violations):
        return feature_error
    return problem
