"""How this process reaches model servers: whether they serve a version, and the policies compiled for them."""

from collections.abc import Callable, Sequence
from functools import partial

from understudy.adapters.model_servers.addresses import Discovery
from understudy.adapters.model_servers.connect import PROTOCOLS, connect, examine
from understudy.adapters.model_servers.description import describe
from understudy.adapters.model_servers.system_resolver import SystemResolver
from understudy.bootstrap.session import Session
from understudy.core.loading.cases import CaseRows
from understudy.core.rollout.state import WarmUpResult
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, ServingPolicy
from understudy.core.routing.policy_document import apply_document
from understudy.errors import MigrationNeeded, NotRegistered, RegistryUnavailable, SchemaInvalid
from understudy.loading.steps import StepResult, Steps
from understudy.loading.validation import validate
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.prediction_log.prediction_history import ScoreHistory
from understudy.ports.registry.policy import PolicySource
from understudy.ports.rollout.warm_up import WarmUpRequests
from understudy.ports.upstream.model_backend import ModelBackend, ServerSeen
from understudy.ports.upstream.model_description import DescribeModel
from understudy.rollout.checks.answer_pairs import AnswerPairs
from understudy.rollout.warm_up.proxy_warm_up import ProxyWarmUp
from understudy.rollout.warm_up.score_comparison import ScoreComparison
from understudy.rollout.warm_up.warm_up import CALLS, READY_SECONDS, WarmUpProbe, warm_up
from understudy.settings import Settings


def connector_of(settings: Settings) -> Callable[..., ModelBackend]:
    """Return :func:`understudy.adapters.model_servers.connect.connect` with the operator's rules and authorities.

    The versions that one connector connects share a resolver.
    """
    return partial(
        connect,
        rules=settings.endpoint_rules,
        ca_file=settings.backend_ca,
        grpc_client=settings.grpc_client,
        discovery=Discovery(SystemResolver(), settings.discovery_seconds),
    )


def describer_of(settings: Settings) -> DescribeModel:
    """Return what asks model servers for a model's tensors, with the operator's rules and authorities."""
    return partial(
        describe, rules=settings.endpoint_rules, ca_file=settings.backend_ca, grpc_client=settings.grpc_client
    )


def warm_up_probe(settings: Settings, policies: PolicySource, proxies: ProxyWarmUp | None = None) -> WarmUpProbe:
    """Return what makes the example calls of a warm-up to versions whose rows ``policies`` has.

    Those that this process cannot reach are called by ``proxies``.
    """
    return WarmUpProbe(policies, connector_of(settings), PROTOCOLS, proxies)


def score_comparison(
    settings: Settings,
    policies: PolicySource,
    history: ScoreHistory,
    windows: WindowLog,
    proxies: ProxyWarmUp | None = None,
) -> ScoreComparison:
    """Return what compares a version's scores with the champion's before its first share."""
    return ScoreComparison(policies, connector_of(settings), PROTOCOLS, history, windows, proxies=proxies)


def answer_pairs(settings: Settings, policies: PolicySource, history: ScoreHistory) -> AnswerPairs:
    """Return what draws pairs of answers for a judge."""
    return AnswerPairs(policies, connector_of(settings), PROTOCOLS, history)


def proxy_warm_up(settings: Settings, requests: WarmUpRequests) -> ProxyWarmUp:
    """Return what has live proxies call versions that this process cannot reach."""
    return ProxyWarmUp(requests, settings.instance)


async def policies_of_proxies(session: Session, model_names: Sequence[str] | None = None) -> PolicySnapshot:
    """Return the policies of these models, or of all, compiled for the protocols of this release; without keys.

    A proxy compiles the same.

    Raises:
        RegistryUnavailable: Postgres does not answer.
    """
    document = await session.policies.load(model_names)
    return apply_document(PolicySnapshot(), document, complete=True, protocols=PROTOCOLS)


async def policy_of_proxies(session: Session, model_name: str) -> ServingPolicy:
    """Return one model's policy as a proxy reads it.

    Raises:
        NotRegistered: The model has none.
        SchemaInvalid: No proxy can use it.
        RegistryUnavailable: Postgres does not answer.
    """
    snapshot = await policies_of_proxies(session, [model_name])
    if model_name in snapshot.policies:
        return snapshot.policies[model_name]
    if model_name in snapshot.rejected:
        raise SchemaInvalid(snapshot.rejected[model_name])
    raise NotRegistered(f"{model_name} has no serving policy", hint="understudy model list shows those that have.")


async def try_version(
    settings: Settings, version: ModelVersion, proxies: ProxyWarmUp | None = None
) -> tuple[tuple[ServerSeen, ...], WarmUpResult | None]:
    """Ask each model server whether it serves the version, and if one does, make the example calls of a warm-up.

    Where this process reaches none, live proxies make them, if its login may ask them.

    Raises:
        BackendUnavailable: This process cannot call them at all: for want of a token or of a file.
    """
    backend = connector_of(settings)(version)
    try:
        servers = await examine(backend, READY_SECONDS)
        if any(not server.problem for server in servers):
            return servers, await warm_up(version, backend)
        is_reached = backend.is_connected
    finally:
        await backend.close()
    if proxies is None or is_reached or not servers:
        return servers, None
    return servers, await ask_proxies(proxies, version, CALLS)


async def validate_version(
    settings: Settings, version: ModelVersion, rows: CaseRows | None, steps: Steps
) -> list[StepResult]:
    """Ask a version's model servers what an agent would before its endpoint: cases, and the steps.

    Raises:
        NotValidated: The cases cannot be asked.
        BackendUnavailable, DeadlineExceeded: The servers do not answer.
    """
    backend = connector_of(settings)(version)
    try:
        steps = steps._replace(most_rows=settings.backend_batch_rows)
        return [result async for result in validate(version, backend, rows, steps)]
    finally:
        await backend.close()


async def ask_proxies(proxies: ProxyWarmUp, version: ModelVersion, example_calls: int) -> WarmUpResult | None:
    """Return what live proxies find of a version; ``None`` without any, or where this login may not ask them."""
    try:
        return await proxies.warm_up(version, example_calls)
    except (MigrationNeeded, RegistryUnavailable):
        return None
