"""Warm-up: example calls to a version before it gets traffic, and what refuses a version that is not ready."""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from understudy.core.requests.example import example_inputs
from understudy.core.rollout.state import WarmUpResult
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.core.routing.policy_document import apply_document
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.errors import (
    BackendUnavailable,
    BadAnswer,
    DeadlineExceeded,
    RegistryUnavailable,
    UnderstudyError,
    VersionNotReady,
)
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.registry.policy import PolicySource
from understudy.ports.upstream.model_backend import ConnectBackend, ModelBackend
from understudy.rollout.warm_up.proxy_warm_up import ProxyWarmUp

READY_SECONDS = 2.0
CALLS = 5
"""As many in a row must be answered well: the first ones of a model that was just loaded may be slow."""
CALL_SECONDS = 5.0


class ExampleCalls(NamedTuple):
    """What became of the example calls to a version."""

    answered: int = 0
    seconds: tuple[float, ...] = ()
    """How long each of those took that were answered."""
    problem: str = ""
    """Why not all were; empty: the version is ready."""
    note: str = ""
    """Why none could be made to a version that is ready."""


class WarmUpProbe:
    """Asks a version's model servers what its callers would.

    Args:
        policies: Where the version's row is read.
        connect: Opens its model servers.
        protocols: Those of model servers that this release speaks.
        proxies: Has live proxies ask servers that this process cannot reach; ``None``: none does.
    """

    def __init__(
        self,
        policies: PolicySource,
        connect: ConnectBackend,
        protocols: Collection[str],
        proxies: ProxyWarmUp | None = None,
    ) -> None:
        self._policies = policies
        self._connect = connect
        self._protocols = protocols
        self._proxies = proxies

    async def probe(self, model_name: str, version_label: str, *, epoch: Epoch | None = None) -> WarmUpResult:
        """Say whether the version is ready and answers an example request; never raises for what is its own fault.

        Raises:
            RegistryUnavailable: The version's row cannot be read.
            LeadershipLost: Proxies are to be asked, and another monitor leads.
        """
        document = await self._policies.load([model_name])
        snapshot = apply_document(PolicySnapshot(), document, complete=True, protocols=self._protocols)
        policy = snapshot.policies.get(model_name)
        version = None if policy is None else policy.versions.get(version_label)
        if version is None:
            return WarmUpResult(passed=False, detail="its row cannot be used: see understudy doctor")
        try:
            backend = self._connect(version)
        except BackendUnavailable as problem:
            return WarmUpResult(passed=False, detail=str(problem))
        try:
            found = await warm_up(version, backend)
            is_reached = backend.is_connected
        finally:
            await backend.close()
        try:
            through = await self._through_proxies(version, epoch, is_reached=is_reached)
        except RegistryUnavailable as problem:
            return WarmUpResult(passed=False, detail=f"{found.detail}; live proxies cannot be asked: {problem}")
        return found if through is None else through

    async def _through_proxies(
        self, version: ModelVersion, epoch: Epoch | None, *, is_reached: bool
    ) -> WarmUpResult | None:
        """Have the proxies make the calls; ``None`` where this process reaches what they do, or none is there."""
        if self._proxies is None:
            return None
        if is_reached and not await self._proxies.have_their_own(version):
            return None
        return await self._proxies.warm_up(version, CALLS, epoch=epoch)


async def require_ready(probe: WarmUpProbe, model_name: str, version: str) -> None:
    """Go on only when a version's model servers answer as its callers need it.

    Raises:
        VersionNotReady: They do not; the detail says what they did.
        RegistryUnavailable: The version's row cannot be read.
    """
    found = await probe.probe(model_name, version)
    if not found.passed:
        raise VersionNotReady(f"version {version} is not ready: {found.detail}")


async def warm_up(version: ModelVersion, backend: ModelBackend) -> WarmUpResult:
    """Say whether the model servers behind ``backend`` answer example calls; never raises for what is their fault."""
    found = await make_example_calls(version, backend)
    detail = found.problem or found.note or f"{found.answered} example calls answered"
    return WarmUpResult(passed=not found.problem, detail=detail)


async def make_example_calls(version: ModelVersion, backend: ModelBackend, calls: int = CALLS) -> ExampleCalls:
    """Make so many example calls, one after the other, until one is not answered; never raises for a server's fault."""
    if not await backend.ready(READY_SECONDS):
        return ExampleCalls(problem="no model server says that it is ready")
    took: list[float] = []
    clock = asyncio.get_running_loop().time
    try:
        row = version.input_schema.assemble(example_inputs(version), None).row
        for _ in range(calls):
            asked_at = clock()
            tensor = await backend.infer([row], CALL_SECONDS)
            (answer,) = predictions_of(version.output_schema, tensor, 1, batch=version.input_schema.batch)
            if not isinstance(answer, Prediction):
                return ExampleCalls(len(took), tuple(took), str(answer))
            took.append(clock() - asked_at)
            await asyncio.sleep(0)
    except (BackendUnavailable, BadAnswer, DeadlineExceeded) as problem:
        # The inputs were made up here, so the server may quote them.
        said = f'; it says: "{problem.said}"' if problem.said else ""
        return ExampleCalls(len(took), tuple(took), f"{problem}{said}")
    except UnderstudyError as problem:
        # Its schema permits no example that can be made up: it is ready, and nothing more can be checked.
        return ExampleCalls(note=f"ready; no example request can be made: {problem}")
    return ExampleCalls(len(took), tuple(took))
