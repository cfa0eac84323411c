"""Warm-up: example calls to a version before it gets traffic, and what refuses a version that is not ready."""

import asyncio
from collections.abc import Collection

from understudy.core.requests.example import example_inputs
from understudy.core.rollout.state import WarmUpResult
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.core.routing.policy_document import apply_document
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, UnderstudyError, VersionNotReady
from understudy.ports.model_backend import ConnectBackend, ModelBackend
from understudy.ports.policy import PolicySource

READY_SECONDS = 2.0
CALLS = 5
"""As many in a row must be answered well: the first ones of a model that was just loaded may be slow."""
CALL_SECONDS = 5.0


class WarmUpProbe:
    """Asks a version's model servers what its callers would.

    Args:
        policies: Where the version's row is read.
        connect: Opens its model servers.
        protocols: Those of model servers that this release speaks.
    """

    def __init__(self, policies: PolicySource, connect: ConnectBackend, protocols: Collection[str]) -> None:
        self._policies = policies
        self._connect = connect
        self._protocols = protocols

    async def probe(self, model_name: str, version_label: str) -> WarmUpResult:
        """Say whether the version is ready and answers an example request; never raises for what is its own fault.

        Raises:
            RegistryUnavailable: The version's row cannot be read.
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
            return await warm_up(version, backend)
        finally:
            await backend.close()


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
    if not await backend.ready(READY_SECONDS):
        return WarmUpResult(passed=False, detail="no model server says that it is ready")
    try:
        row = version.input_schema.assemble(example_inputs(version), None).row
        for _ in range(CALLS):
            tensor = await backend.infer([row], CALL_SECONDS)
            (answer,) = predictions_of(version.output_schema, tensor, 1, batch=version.input_schema.batch)
            if not isinstance(answer, Prediction):
                return WarmUpResult(passed=False, detail=str(answer))
            await asyncio.sleep(0)
    except (BackendUnavailable, BadAnswer, DeadlineExceeded) as problem:
        # The inputs were made up here, so the server may quote them.
        said = f'; it says: "{problem.said}"' if problem.said else ""
        return WarmUpResult(passed=False, detail=f"{problem}{said}")
    except UnderstudyError as problem:
        # Its schema permits no example that can be made up: it is ready, and nothing more can be checked.
        return WarmUpResult(passed=True, detail=f"ready; no example request can be made: {problem}")
    return WarmUpResult(passed=True, detail=f"{CALLS} example calls answered")
