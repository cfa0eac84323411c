"""One version's part in a call: assemble its inputs, ask it, and say what came of it."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from understudy.core.requests.rank import AssembledTreatments
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.schema import Assembled
from understudy.core.schema.stored_features import assemble_without_unfit
from understudy.errors import DeadlineExceeded, FeaturesUnavailable, InputInvalid, ServingError, UnderstudyError
from understudy.serving.call import Call, Served
from understudy.serving.feature_fetch import FeatureFetch
from understudy.serving.thread_bulkhead import ThreadBulkhead
from understudy.serving.upstream.cached_inference import CachedInference

MAX_LARGE = 2
"""Large inputs of callers that are assembled at once: more threads would only take the interpreter from the event loop.
"""
MAX_LARGE_SHADOWS = 1
"""Those of shadows, which have a place of their own: no caller waits behind one."""


class VersionCalls:
    """Asks versions for their predictions.

    Args:
        inference: Answers from a cache, or from the version's model servers.
        features: Counts stored values that did not fit.
        max_large: Large inputs that are assembled at once, in threads.
    """

    def __init__(self, inference: CachedInference, features: FeatureFetch, max_large: int = MAX_LARGE) -> None:
        self._inference = inference
        self._features = features
        self._large = ThreadBulkhead(max_large)

    async def serve(self, call: Call, version: ModelVersion, deadline: float) -> Served:
        """Return the version's prediction, or its failure; large inputs are assembled in a thread."""
        is_large = call.request.is_large(version)
        assembled = await self._assembled_aside(call, version, deadline) if is_large else assembled_for(call, version)
        if isinstance(assembled, Served):
            return assembled
        if call.stored and assembled.defaulted:
            self._features.count_unfit(call.policy.model_name, call.stored, assembled.defaulted)
        try:
            prediction, cache = await self._inference.infer(version, assembled, deadline)
        except ServingError as problem:
            return failure_of(call, version, assembled, problem)
        return Served(version, assembled, prediction, None, cache)

    async def _assembled_aside(
        self, call: Call, version: ModelVersion, deadline: float
    ) -> Assembled | AssembledTreatments | Served:
        """Return what :func:`assembled_for` returns, from a thread, until the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._large.run(assembled_for, call, version)
        except TimeoutError:
            return Served(version, None, None, DeadlineExceeded("queue", call.budget_seconds))


def assembled_for(call: Call, version: ModelVersion) -> Assembled | AssembledTreatments | Served:
    """Return the version's inputs, or what it makes of a call without them."""
    try:
        return call.request.assemble(version, call.stored)
    except InputInvalid as problem:
        if call.stored:
            return _without_unfit(call, version, call.stored, problem)
        return Served(version, None, None, _blame(problem, version, call.feature_error).as_value())


def failure_of(
    call: Call, version: ModelVersion, assembled: Assembled | AssembledTreatments | None, problem: ServingError
) -> Served:
    """Return what a version made of a call when asking it ended in ``problem``."""
    error = problem.as_value()
    if isinstance(error, DeadlineExceeded):
        error = DeadlineExceeded(error.stage, call.budget_seconds)
    return Served(version, assembled, None, error)


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
