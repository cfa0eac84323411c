"""``understudy version check``: whether a version would answer, before callers depend on it."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from shlex import quote
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import RenderableType
from rich.text import Text

from understudy.bootstrap.http_control_plane import registry_path
from understudy.bootstrap.session import Session
from understudy.core.rollout.state import WarmUpResult
from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.policy_document import version_from_row
from understudy.core.schema.compile import compile_input_schema
from understudy.core.schema.input_diff import InputDifferences, Names, differences_of
from understudy.core.upstream.same_call import same_calls
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, ModelName, VersionLabel
from understudy.entrypoints.cli.shared.screens import AtProxy, Drawn, show_screen
from understudy.entrypoints.cli.shared.texts.findings_text import findings_table, findings_verdict
from understudy.entrypoints.documents.findings import finding_document
from understudy.entrypoints.logs import keep_log_off_output
from understudy.errors import BackendUnavailable, SchemaInvalid
from understudy.ports.loading.loading_registry import VersionLoadingRecord
from understudy.ports.registry.registry import RETIRED, ModelRecord, PolicyRecord, VersionRecord
from understudy.ports.rollout.warm_up import WarmUpRequests
from understudy.ports.upstream.model_backend import ServerSeen
from understudy.registry.findings.finding import Finding, State
from understudy.registry.findings.loading import judge_validation
from understudy.registry.findings.versions import (
    IS_CHAMPION,
    NO_CHAMPION,
    judge_each_server,
    judge_inputs,
    judge_same_call,
    judge_status,
    judge_unloaded,
    judge_warm_up,
)
from understudy.settings import Settings

Against = Annotated[
    str | None, typer.Option(metavar="VERSION", help="Whose callers it should answer; by default the champion's.")
]

_BACKEND_ADVICE = "Correct the version's backend settings, or give this process what they name; proxies need it too."


Tried = tuple[tuple[ServerSeen, ...], WarmUpResult | None]
"""What became of calls to a version: of each server, and of the example calls where one serves it."""


class Asked(NamedTuple):
    """What the registry has of a version; ``against`` is whom its inputs are compared with."""

    model: ModelRecord
    version: VersionRecord
    against: VersionRecord | None
    loading: VersionLoadingRecord | None = None
    """What agents do about it; ``None``: people serve it."""
    others: Sequence[VersionRecord] = ()
    """The model's other versions that are not retired, and the one that it is compared with."""


class Checked(NamedTuple):
    """What was found of a version; ``inputs`` and ``warm_up`` are ``None`` where it did not come to that."""

    asked: Asked
    findings: Sequence[Finding]
    servers: Sequence[ServerSeen] = ()
    inputs: InputDifferences | None = None
    warm_up: WarmUpResult | None = None

    @property
    def is_ready(self) -> bool:
        """Whether nothing stands against callers, warnings aside."""
        return all(finding.state is not State.PROBLEM for finding in self.findings)


def check(*, model: ModelName, version: VersionLabel, against: Against = None, as_json: AsJson = False) -> None:
    """Ask a version's model servers what callers would, as the start of a rollout does; leaves with 1 for a problem.

    Nothing is changed, and no caller's answer comes from it.
    """
    if against == version:
        what = f"version {version} of {model} is compared with itself"
        raise CommandRefused(ExitCode.USAGE, what, "Name another one with --against, or none for the champion.")
    keep_log_off_output()

    async def draw(session: Session) -> Drawn:
        settings = settings_with_demo(lambda _: None)
        asked = await asked_of(session, model, version, against)
        # A proxy knows the versions of models that have a policy.
        requests = session.warm_ups if asked.model.policy is not None else None
        return drawn(await checked(asked, partial(_try, settings, requests)))

    place = f"{registry_path(model, 'versions', version)}:check"
    named = {} if against is None else {"against": against}
    document = show_screen(draw, AtProxy(place, named, "POST"), as_json=as_json)
    raise typer.Exit(ExitCode.DONE if document["ready"] else ExitCode.PROBLEM)


async def _try(settings: Settings, requests: WarmUpRequests | None, version: ModelVersion) -> Tried:
    # gRPC and its messages: 0.2 s, which the other commands of this noun do without.
    from understudy.bootstrap.upstream.backends import proxy_warm_up, try_version  # noqa: PLC0415

    return await try_version(settings, version, None if requests is None else proxy_warm_up(settings, requests))


async def asked_of(session: Session, model_name: str, version: str, against: str | None) -> Asked:
    """Read a version, and whom to compare it with; raises as :meth:`Registry.show_version`."""
    model = await session.registry.show_model(model_name)
    record = await session.registry.show_version(model_name, version)
    other = against
    if other is None and model.policy is not None and model.policy.champion != version:
        other = model.policy.champion
    compared = None if other is None else await session.registry.show_version(model_name, other)
    others = [
        one for one in await session.registry.list_versions(model_name) if one.status != RETIRED or one == compared
    ]
    return Asked(model, record, compared, await session.loading.show(model_name, version), others)


async def checked(asked: Asked, try_it: Callable[[ModelVersion], Awaitable[Tried]]) -> Checked:
    """Look at a version, which ``try_it`` calls; what it does is a finding, never an error."""
    record = asked.version
    findings = judge_status(record.model_name, record.version, record.status)
    try:
        version = version_from_row(record.model_name, record._asdict())
    except SchemaInvalid as problem:
        return Checked(asked, [*findings, Finding("schema", State.PROBLEM, problem.detail, problem.next_step)])
    alike = _alike(record, asked.against)
    findings += [judge_same_call(found, are_alike=found.other == alike) for found in same_calls(record, asked.others)]
    compared, inputs = _compare_inputs(asked, version)
    try:
        servers, result = await try_it(version)
    except BackendUnavailable as problem:
        findings += [Finding("servers", State.PROBLEM, problem.detail, _BACKEND_ADVICE), compared]
        return Checked(asked, findings, (), inputs)
    through = () if result is None else result.proxies
    if not servers and asked.loading is not None:
        findings.append(judge_unloaded(asked.loading))
    else:
        findings += judge_each_server(record.model_name, record.version, servers, version.timeout_seconds, through)
    findings += judge_validation(asked.loading, record.status)
    return Checked(asked, [*findings, compared, judge_warm_up(result)], servers, inputs, result)


def _alike(version: VersionRecord, against: VersionRecord | None) -> str | None:
    """Return the label of whom a version is compared with, if both have the same schemas."""
    schemas = (version.input_schema, version.output_schema)
    return against.version if against is not None and schemas == (against.input_schema, against.output_schema) else None


def _compare_inputs(asked: Asked, version: ModelVersion) -> tuple[Finding, InputDifferences | None]:
    against = asked.against
    if against is None:
        return (NO_CHAMPION if asked.model.policy is None else IS_CHAMPION), None
    try:
        before = compile_input_schema(against.input_schema)
    except SchemaInvalid as problem:
        what = f"version {against.version}, which it would be compared with: {problem.detail}"
        return Finding("inputs", State.WARNING, what, problem.next_step), None
    names = Names(f"version {against.version}", f"version {version.version}")
    found = differences_of(before, version.input_schema, names)
    return judge_inputs(against.version, version.version, found), found


def drawn(found: Checked) -> Drawn:
    """Return what was found as it is shown."""
    return Drawn(check_document(found), check_texts(found))


def check_document(found: Checked) -> dict[str, Any]:
    """Return what was found as JSON."""
    against = found.asked.against
    states = Counter(finding.state for finding in found.findings)
    return {
        "model": found.asked.model.model_name,
        "version": found.asked.version.version,
        "ready": found.is_ready,
        "against": None if against is None else against.version,
        "servers": [server._asdict() for server in found.servers],
        "input_differences": None if found.inputs is None else found.inputs._asdict(),
        "warm_up": None if found.warm_up is None else _warm_up_document(found.warm_up),
        "findings": [*map(finding_document, found.findings)],
        "problems": states[State.PROBLEM],
        "warnings": states[State.WARNING],
    }


def _warm_up_document(result: WarmUpResult) -> dict[str, Any]:
    """Return what became of the example calls; a check compares no scores, only a rollout's warm-up does."""
    return {"passed": result.passed, "detail": result.detail}


def check_texts(found: Checked) -> list[RenderableType]:
    """Return the verdict, what was found with what to do about it, and the next command."""
    named = f"{found.asked.model.model_name} {found.asked.version.version}"
    mark, style, words = ("✔", "green", "is ready") if found.is_ready else ("✖", "red", "is not ready")
    head = Text(f"{mark} ", style).append(f"{named} {words} for callers. ", "bold")
    return [head + findings_verdict(found.findings), findings_table(found.findings), *_next_step(found)]


def _next_step(found: Checked) -> list[str]:
    """Return what may be done with a version that is ready and has nothing to do yet."""
    model, version = found.asked.model, found.asked.version.version
    named = f"{quote(model.model_name)} {quote(version)}"
    if not found.is_ready or (model.policy is not None and _has_role(model.policy, version)):
        return []
    if model.policy is None:
        first = f"understudy model set {quote(model.model_name)} --champion {quote(version)} --reason '…'"
        return [f"→ {first} makes it the first champion: it answers every call"]
    return [f"→ understudy rollout start {named} --reason '…' gives it traffic step by step, and judges it"]


def _has_role(policy: PolicyRecord, version: str) -> bool:
    return version in (policy.champion, policy.challenger, policy.shadow, *(arm.arm for arm in policy.arms))
