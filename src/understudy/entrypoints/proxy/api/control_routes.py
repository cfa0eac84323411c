"""The control plane's routes: FastAPI reads queries and headers, the functions of the control plane do the rest."""

import time
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import FastAPI, Header, Query, Request, Response

from understudy.core.drift.hours import JUDGED_SECONDS
from understudy.core.durations import duration_seconds, moment_seconds
from understudy.core.rollout.state import CommandKind
from understudy.core.schema.typed_decoder import MAX_ENTITY_ID
from understudy.entrypoints.proxy.api.authorization import permitted_models
from understudy.entrypoints.proxy.api.control_calls import (
    NAME_PATTERN,
    Columns,
    Cursor,
    DryRun,
    ModelOrAll,
    body_of,
    call_of,
)
from understudy.entrypoints.proxy.api.experiment_routes import add_experiment_routes
from understudy.entrypoints.proxy.api.fastapi_support import Name, response_of
from understudy.entrypoints.proxy.api.key_routes import add_key_routes
from understudy.entrypoints.proxy.api.openapi.control import CONTROL
from understudy.entrypoints.proxy.api.registry_routes import add_registry_routes
from understudy.entrypoints.proxy.control import explanations, outcomes, policies, reports, rollouts
from understudy.entrypoints.proxy.control.pages import audit_place
from understudy.errors import QueryInvalid, ScopeMissing, Violation
from understudy.experiments.declared_tests import MetricChoice, Wanted
from understudy.experiments.declaring import AbQuestion
from understudy.experiments.shadow_report import ShadowQuestion
from understudy.monitoring.drift_view import DriftQuestion, judged_seconds_since
from understudy.ports.experiments.experiment_log import Observed
from understudy.ports.registry.registry import AuditFilter, AuditSubject

_OF_ONE_MODEL = "this needs a key with scope 'read' for all models; one for a model asks for that model's changes"
MAX_LISTED = 100
MAX_NAMES_BYTES = 1_048_576
MAX_POLICY_BYTES = 262_144
"""Of a policy beside the file that it is from, which says the same once more."""
MAX_CHANGES_LISTED = 1_000
"""Of the audit, as by the command line."""
USUAL_WANTED = Wanted(0.05)
"""The effect that a report without a declared test looks for, on the command line too."""

DriftPolicyName = Literal["default", "seed"]
Named = Annotated[str | None, Query(pattern=NAME_PATTERN, description="Only changes by this one.")]
Limit = Annotated[int, Query(ge=1, le=MAX_LISTED)]
Moment = Annotated[str, Query(max_length=100, description="So long ago, a day or a moment: 24h, 2026-11-20.")]


def add_control_routes(api: FastAPI) -> None:
    """Add the control plane's routes. The application's state has ``settings``, and in its lifespan ``control``."""
    _add_rollout_routes(api)
    for kind in CommandKind:
        _add_command_route(api, kind)
    _add_policy_routes(api)
    _add_explanation_routes(api)
    _add_report_routes(api)
    _add_outcome_routes(api)
    add_registry_routes(api)
    add_experiment_routes(api)
    add_key_routes(api)


def _add_rollout_routes(api: FastAPI) -> None:
    @api.post("/v1/models/{model}/rollouts", **CONTROL["start_rollout"])
    async def start_rollout(model: Name, request: Request, *, dry_run: DryRun = False) -> Response:
        return response_of(
            await rollouts.start_rollout(call_of(request, model), await body_of(request), dry_run=dry_run)
        )

    @api.get("/v1/models/{model}/rollouts", **CONTROL["list_rollouts"])
    async def list_rollouts(model: Name, request: Request, limit: Limit = 20) -> Response:
        return response_of(await rollouts.list_rollouts(call_of(request, model), limit))

    @api.get("/v1/rollouts", **CONTROL["list_all_rollouts"])
    async def list_all_rollouts(request: Request, limit: Limit = 20) -> Response:
        call = call_of(request, "")
        return response_of(await rollouts.list_all_rollouts(call, limit, permitted_models(request.scope)))

    @api.get("/v1/models/{model}/rollouts/{rollout_id}", **CONTROL["get_rollout"])
    async def get_rollout(
        model: Name, request: Request, rollout_id: str, *, columns: Columns = None, utc: bool = False
    ) -> Response:
        call = call_of(request, model)
        return response_of(await rollouts.show_rollout(call, rollout_id, columns=columns, utc=utc))

    @api.post("/v1/models/{model}:rollback", **CONTROL["roll_back"])
    async def roll_back(model: Name, request: Request) -> Response:
        return response_of(await rollouts.roll_back(call_of(request, model), await body_of(request)))


def _add_command_route(api: FastAPI, kind: CommandKind) -> None:
    @api.post(f"/v1/models/{{model}}/rollouts/{{rollout_id}}:{kind}", **CONTROL[kind])
    async def command_rollout(model: Name, rollout_id: str, request: Request) -> Response:
        return response_of(
            await rollouts.command_rollout(call_of(request, model), rollout_id, kind, await body_of(request))
        )


def _add_policy_routes(api: FastAPI) -> None:
    @api.get("/v1/models/{model}/policy", **CONTROL["get_policy"])
    async def get_policy(model: Name, request: Request) -> Response:
        return response_of(await policies.show_policy(call_of(request, model)))

    @api.get("/v1/models/{model}/policy/reach", **CONTROL["get_reach"])
    async def get_reach(
        model: Name, request: Request, generation: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None
    ) -> Response:
        return response_of(await rollouts.show_reach(call_of(request, model), generation))

    @api.patch("/v1/models/{model}/policy", **CONTROL["change_policy"])
    async def change_policy(
        model: Name,
        request: Request,
        *,
        if_match: Annotated[str | None, Header(description="The ETag of the policy that you saw.")] = None,
        dry_run: DryRun = False,
    ) -> Response:
        generation = policies.read_generation(if_match)
        body = await body_of(request, MAX_POLICY_BYTES)
        return response_of(
            await policies.change_policy(call_of(request, model), body, generation=generation, dry_run=dry_run)
        )

    @api.get("/v1/audit", **CONTROL["list_audit"])
    async def list_audit(
        request: Request,
        *,
        model: ModelOrAll = None,
        subject: Annotated[AuditSubject | None, Query(description="Only changes of such things.")] = None,
        actor: Named = None,
        via: Named = None,
        since: Moment | None = None,
        generation: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Of a policy.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_CHANGES_LISTED)] = 20,
        cursor: Cursor = None,
    ) -> Response:
        permitted = permitted_models(request.scope)
        if permitted is not None and model not in permitted:
            raise ScopeMissing(_OF_ONE_MODEL, hint="Name the model: ?model=…, or understudy audit list MODEL.")
        began = None if since is None else datetime.fromtimestamp(_moment("since", since, time.time()), UTC)
        only = AuditFilter(actor, via, began, generation, audit_place(cursor))
        return response_of(await policies.list_audit(call_of(request, model or ""), limit, subject, only))


def _add_explanation_routes(api: FastAPI) -> None:
    @api.get("/v1/models/{model}/changes", **CONTROL["get_changes"])
    async def get_changes(model: Name, request: Request, *, columns: Columns = None) -> Response:
        return response_of(await explanations.show_changes(call_of(request, model), columns))

    @api.get("/v1/models/{model}/explanation", **CONTROL["get_explanation"])
    async def get_explanation(
        model: Name,
        request: Request,
        *,
        entity_id: Annotated[str, Query(min_length=1, max_length=MAX_ENTITY_ID)],
        category: Annotated[str | None, Query(max_length=MAX_ENTITY_ID)] = None,
        columns: Columns = None,
    ) -> Response:
        call = call_of(request, model)
        return response_of(await explanations.explain_entity(call, entity_id, category, columns))


def _add_outcome_routes(api: FastAPI) -> None:
    @api.post("/v1/outcomes:check", **CONTROL["check_outcomes"])
    async def check(request: Request) -> Response:
        call, body = call_of(request, ""), await body_of(request, MAX_NAMES_BYTES)
        return response_of(await outcomes.check_outcomes(call, body, permitted_models(request.scope)))


def _add_report_routes(api: FastAPI) -> None:
    @api.get("/v1/models/{model}/reports/ab", **CONTROL["report_ab"])
    async def report_ab(
        model: Name,
        request: Request,
        *,
        metric: Annotated[str, Query(pattern=NAME_PATTERN)],
        since: Moment | None = None,
        within: Annotated[str, Query(max_length=100)] = "7d",
        per_call: bool = False,
        lower_is_better: bool = False,
        version: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
        quantiles: Observed | None = None,
    ) -> Response:
        now = time.time()
        choice = MetricChoice(_duration("within", within), per_call, not lower_is_better)
        began = None if since is None else _moment("since", since, now)
        question = AbQuestion(model, metric, now, began, USUAL_WANTED, choice, quantiles=quantiles)
        try:
            return response_of(await reports.report_ab(call_of(request, model), question, version))
        except ValueError as problem:
            raise _unusable("version", f"{problem}; name another one") from None

    @api.get("/v1/models/{model}/reports/shadow", **CONTROL["report_shadow"])
    async def report_shadow(
        model: Name,
        request: Request,
        since: Moment = "24h",
        threshold: Annotated[float, Query(allow_inf_nan=False)] = 0.5,
        columns: Columns = None,
    ) -> Response:
        now = time.time()
        question = ShadowQuestion(model, now, _moment("since", since, now), threshold)
        return response_of(await reports.report_shadow(call_of(request, model), question, columns))

    @api.get("/v1/models/{model}/reports/drift", **CONTROL["report_drift"])
    async def report_drift(
        model: Name,
        request: Request,
        *,
        version: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
        since: Moment | None = None,
        policy: DriftPolicyName | None = None,
        columns: Columns = None,
    ) -> Response:
        question = DriftQuestion(model, _judged_seconds(since), version, policy)
        return response_of(await reports.report_drift(call_of(request, model), question, columns))

    @api.get("/v1/models/{model}/reports/skew", **CONTROL["report_skew"])
    async def report_skew(
        model: Name,
        request: Request,
        version: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
        columns: Columns = None,
    ) -> Response:
        return response_of(await reports.report_skew(call_of(request, model), version, columns))


def _duration(name: str, text: str) -> float:
    try:
        return duration_seconds(text)
    except ValueError as problem:
        raise _unusable(name, f"{problem}; for example 90s, 30m, 24h, 7d or 2w") from None


def _moment(name: str, text: str, now: float) -> float:
    try:
        return moment_seconds(text, now)
    except ValueError as problem:
        raise _unusable(name, f"{problem}; for example 7d, 2026-11-20 or 2026-11-20T13:00Z") from None


def _judged_seconds(since: str | None) -> float:
    if since is None:
        return JUDGED_SECONDS
    now = time.time()
    try:
        return judged_seconds_since(_moment("since", since, now), now)
    except ValueError as problem:
        raise _unusable("since", f"{problem}; name a later time") from None


def _unusable(name: str, detail: str) -> QueryInvalid:
    return QueryInvalid.naming(Violation(f"/query/{name}", detail))
