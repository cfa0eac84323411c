"""Stored features of a call: which ones it may need, what the feature store has of them, and inputs without some."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from understudy.core.requests.rank import AssembledTreatments
from understudy.core.routing.policy import ModelVersion, ServingPolicy
from understudy.core.routing.route import Route, falls_back
from understudy.core.schema.schema import Assembled
from understudy.core.schema.stored_features import assemble_without_unfit
from understudy.errors import FeaturesUnavailable, InputInvalid, UnderstudyError
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.telemetry.tracing import step
from understudy.ports.upstream.feature_store import FeatureStore
from understudy.serving.call import Call


class FeatureFetch:
    """Fetches what a request leaves out, within a timeout of its own and the call's deadline.

    Args:
        store: ``None`` when no feature store is set up.
        telemetry: Counts fetches, missing features and values that do not fit.
        timeout_seconds: Longest wait for the store.
        now: The monotonic clock, in seconds.
    """

    def __init__(
        self, store: FeatureStore | None, telemetry: Telemetry, timeout_seconds: float, now: Callable[[], float]
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._timeout_seconds = timeout_seconds
        self._now = now

    async def fetch(self, call: Call) -> None:
        """Give the call what the store has of those of the wanted features that the request leaves out."""
        inputs = call.request.inputs
        names = [name for name in call.wanted if name not in inputs]
        if not names:
            return
        if self._store is None:
            call.feature_error = FeaturesUnavailable("no feature store is set up")
            return
        budget = min(self._timeout_seconds, call.ends - self._now())
        try:
            with step("features"):
                async with asyncio.timeout(budget):
                    found = await self._store.fetch(call.policy.model_name, call.request.entity_id, names, budget)
        except TimeoutError:
            call.feature_error = FeaturesUnavailable(f"the feature store did not answer within {budget * 1000:.0f} ms")
        except FeaturesUnavailable as problem:
            call.feature_error = problem
        else:
            self._telemetry.count("feature_fetch_total", "ok")
            for name in names:
                if name not in found:
                    self._telemetry.count("feature_missing_total", call.policy.model_name, name)
            call.stored = found
            return
        self._telemetry.count("feature_fetch_total", "error")

    def count_unfit(self, model_name: str, stored: Mapping[str, Any], defaulted: Sequence[str]) -> None:
        """Count the features that the store has, and whose default was taken because the stored value does not fit."""
        for name in defaulted:
            if name in stored:
                self._telemetry.count("feature_missing_total", model_name, name)


def names_for(policy: ServingPolicy, route: Route) -> Sequence[str]:
    """Return the stored features that the call may need: its version's, and the champion's if that may stand in."""
    names = route.version.input_schema.stored_names
    if not falls_back(policy, route):
        return names
    return tuple(dict.fromkeys(names + policy.champion.input_schema.stored_names))


def inputs_in_spite_of(problem: InputInvalid, call: Call) -> Assembled | AssembledTreatments | UnderstudyError:
    """Return inputs of the version that is asked although assembling them failed, or why there are none."""
    if call.stored:
        return _without_unfit(call, call.version, call.stored, problem)
    return _blame(problem, call.version, call.feature_error).as_value()


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
