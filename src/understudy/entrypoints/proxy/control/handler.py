"""The control plane over HTTP: what the command line does, for programs.

Its answers are the documents that the command line prints with ``--json``, but for what only one of them can say: calls
in flight here, the next command and the entities that a change moves there.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import structlog

from understudy.bootstrap.control import Control, ControlParts
from understudy.core.rollout.state import Command, Order
from understudy.core.routing.access import key_id_of
from understudy.entrypoints.documents.drift import drift_document
from understudy.entrypoints.documents.experiments import Label, ab_document, shadow_document
from understudy.entrypoints.documents.json_text import json_text
from understudy.entrypoints.documents.policies import audit_document, policy_document, version_label
from understudy.entrypoints.documents.rollbacks import rollback_document
from understudy.entrypoints.documents.rollouts import (
    listing_document,
    order_document,
    start_document,
    status_document,
)
from understudy.entrypoints.proxy.control.bodies import PolicyChange, Remark, RolloutStart, number_of
from understudy.entrypoints.proxy.control.worker_pool import WorkerPool
from understudy.entrypoints.proxy.messages.headers import RequestOptions
from understudy.entrypoints.proxy.messages.reply import JSON, Reply
from understudy.errors import (
    DeadlineExceeded,
    GenerationMoved,
    MigrationNeeded,
    NotRegistered,
    Overloaded,
    RegistryError,
    RegistryUnavailable,
)
from understudy.experiments.ab_report import report_ab
from understudy.experiments.declaring import AbQuestion, named_b
from understudy.experiments.shadow_report import ShadowQuestion, report_shadow
from understudy.lifecycle.registry import MAX_NAME, set_policy
from understudy.monitoring.drift_view import DriftQuestion, view_drift
from understudy.ports.registry import Origin, PolicyRecord
from understudy.ports.rollout_store import RollbackRecord
from understudy.rollout.commands import order as carry_out_order
from understudy.rollout.propagation import Confirmed, wait_for_proxies
from understudy.rollout.replay import judged_again
from understudy.rollout.start import prepare, require_ready, require_same_inputs
from understudy.rollout.status import StatusReader

_log = structlog.get_logger(__name__)
T = TypeVar("T")
VIA = "http"
READS, WRITES, ROLLBACKS, CONFIRMATIONS = 2, 4, 2, 4
"""Calls of each kind at a time. A rollback waits neither behind a report nor for what another one waits for."""
READ_SECONDS = WRITE_SECONDS = 10.0
REPORT_SECONDS = 30.0
"""Longer than Postgres has for an answer, so that its advice is what a slow question gets."""
START_SECONDS = 45.0
"""The warm-up alone may take most of it."""
CONFIRM_SECONDS = 2.0
"""Longest time that a rollback waits for the proxies."""
SALT_BYTES = 4


class Caller(NamedTuple):
    """Who calls, and how long there is to answer; ``None``: as long as this kind of call may take."""

    key_id: str
    timeout_seconds: float | None = None

    @classmethod
    def of(cls, asked: RequestOptions) -> "Caller":
        """Return the caller that the headers name."""
        return cls(key_id_of(asked.authorization), asked.timeout_seconds)

    def seconds(self, most: float) -> float:
        """Return how long a call may take that may take ``most`` seconds."""
        return most if self.timeout_seconds is None else min(most, self.timeout_seconds)

    def origin(self, reason: str | None) -> Origin:
        """Return whose change it is, for the audit."""
        return Origin(self.key_id, VIA, reason)


class ControlHandler:
    """Answers calls that move traffic, and those that ask what moved it and why.

    Every method also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.

    Args:
        control: Opens what calls work with.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._reads = WorkerPool(control.parts, READS)
        self._writes = WorkerPool(control.parts, WRITES)
        self._rollbacks = WorkerPool(control.parts, ROLLBACKS)
        self._confirmations = WorkerPool(control.parts, CONFIRMATIONS)

    def close(self) -> None:
        """Let go of the threads."""
        for pool in (self._rollbacks, self._confirmations, self._writes, self._reads):
            pool.close()

    # -- rollouts ------------------------------------------------------------------------------------------------------

    async def start_rollout(self, model_name: str, body: bytes, caller: Caller, *, dry_run: bool) -> Reply:
        """Start a rollout once the version has answered a warm-up; with ``dry_run`` only say what it would be.

        Raises:
            MalformedBody, BodyInvalid: The body.
            NotRegistered: The model has no policy, or no such version.
            PolicyRefused: The plan cannot be used, the version is champion already, or a rollout is open.
            VersionNotReady: Its model servers do not answer, or it needs other inputs than the champion.
            GenerationMoved: The policy was changed while they were asked.
        """
        asked = RolloutStart.read(body, dry_run=dry_run)
        main = asyncio.get_running_loop()

        async def start(parts: ControlParts) -> Reply:
            prepared = await prepare(
                parts.registry, parts.windows, model_name, asked.version, asked.plan, now=time.time()
            )
            if dry_run:
                return _answer(start_document(prepared, None))
            require_same_inputs(prepared)
            # gRPC's connections belong to the event loop that has the others already.
            probed = asyncio.run_coroutine_threadsafe(self._require_ready(model_name, asked.version), main)
            await asyncio.wrap_future(probed)
            record = await parts.rollouts.start(
                prepared.rollout(asked.hashed_salt(_fresh_salt)),
                caller.origin(asked.reason),
                expected_generation=prepared.generation,
            )
            place = f"/v1/models/{quote(model_name, safe='')}/rollouts/{record.id}".encode()
            return _answer(start_document(prepared, record), 201, (b"location", place))

        return await self._ask(self._writes, model_name, start, caller.seconds(START_SECONDS))

    async def list_rollouts(self, model_name: str, limit: int, caller: Caller) -> Reply:
        """Return a model's newest rollouts, newest first."""

        async def read(parts: ControlParts) -> Reply:
            await parts.registry.show_model(model_name)
            return _answer(listing_document(await parts.rollouts.list(model_name, limit)))

        return await self._ask(self._reads, model_name, read, caller.seconds(READ_SECONDS))

    async def show_rollout(self, model_name: str, rollout_id: str, caller: Caller) -> Reply:
        """Return a rollout, how it stands, what happened to it, and each verdict judged again.

        Raises:
            NotRegistered: The model has no such rollout.
        """
        number = _id_of(rollout_id)

        async def read(parts: ControlParts) -> Reply:
            status = await StatusReader(parts.rollouts, parts.windows, parts.measure_outcome, model_name, number).read()
            replays = judged_again(status.events)
            return _answer(status_document(status, replays))

        return await self._ask(self._reads, model_name, read, caller.seconds(REPORT_SECONDS))

    async def order(self, model_name: str, rollout_id: str, order: Order, body: bytes, caller: Caller) -> Reply:
        """Pause, resume, promote or abort a rollout; an order that changes nothing says so.

        Raises:
            MalformedBody, BodyInvalid: The body.
            NotRegistered: The model has no such rollout.
            GenerationMoved: The rollout went on moving under the order.
        """
        number = _id_of(rollout_id)
        command = Command(order, caller.key_id, Remark.read(body).reason or "")

        async def give(parts: ControlParts) -> Reply:
            return _answer(order_document(await carry_out_order(parts.rollouts, model_name, number, command)))

        return await self._ask(self._writes, model_name, give, caller.seconds(WRITE_SECONDS))

    async def roll_back(self, model_name: str, body: bytes, caller: Caller) -> Reply:
        """Send all traffic back at once, and say how far that has come; doing it again changes nothing.

        Raises:
            MalformedBody, BodyInvalid: The body.
            NotRegistered: There is no such model.
            PolicyRefused: The model has no policy.
        """
        origin = caller.origin(Remark.read(body).reason)

        async def take_back(parts: ControlParts) -> RollbackRecord:
            await parts.registry.show_model(model_name)
            return await parts.rollouts.roll_back(model_name, origin)

        done = await self._ask(self._rollbacks, model_name, take_back, caller.seconds(WRITE_SECONDS))
        confirmed, in_flight = await self._reach_of(model_name, done.generation, caller)
        return _answer({"rollback": {**rollback_document(done, confirmed), "in_flight": in_flight}})

    async def _reach_of(
        self, model_name: str, generation: int, caller: Caller
    ) -> tuple[Confirmed | None, dict[str, int] | None]:
        """Return how far a rollback has come; it is done, and that nobody can say so does not change that."""

        async def wait(parts: ControlParts) -> tuple[Confirmed, dict[str, int] | None]:
            return await _reach(parts, model_name, generation)

        with suppress(RegistryError, Overloaded, DeadlineExceeded):
            return await self._ask(self._confirmations, model_name, wait, caller.seconds(CONFIRM_SECONDS + 1))
        return None, None

    # -- policies ------------------------------------------------------------------------------------------------------

    async def show_policy(self, model_name: str, caller: Caller) -> Reply:
        """Return a model's policy, with its generation as ``ETag``.

        Raises:
            NotRegistered: There is no such model, or it has no policy.
        """

        async def read(parts: ControlParts) -> Reply:
            policy = (await parts.registry.show_model(model_name)).policy
            if policy is None:
                raise NotRegistered(
                    "the model has no serving policy", hint='PATCH one with a champion and If-Match: "0".'
                )
            return _answer({"policy": policy_document(policy)}, 200, _etag(policy))

        return await self._ask(self._reads, model_name, read, caller.seconds(READ_SECONDS))

    async def change_policy(
        self, model_name: str, body: bytes, caller: Caller, *, generation: int, dry_run: bool
    ) -> Reply:
        """Change fields of a policy that is at this generation; 0 makes a model's first one.

        Raises:
            MalformedBody, BodyInvalid: The body.
            NotRegistered: There is no such model or version.
            GenerationMoved: The policy is at another generation.
            PolicyRefused: The database refuses the change.
        """
        asked = PolicyChange.read(body)

        async def change(parts: ControlParts) -> Reply:
            await parts.registry.show_model(model_name)
            try:
                policy = await set_policy(
                    parts.registry,
                    model_name,
                    asked.changes,
                    caller.origin(asked.reason),
                    expected_generation=generation,
                    dry_run=dry_run,
                )
            except GenerationMoved as problem:
                raise await _explained(parts, model_name, problem) from problem
            changed = policy.generation != generation and not dry_run
            document = {"policy": policy_document(policy), "changed": changed, "dry_run": dry_run}
            return _answer(document, 200, *([] if dry_run else [_etag(policy)]))

        return await self._ask(self._writes, model_name, change, caller.seconds(WRITE_SECONDS))

    async def list_audit(self, model_name: str | None, limit: int, caller: Caller) -> Reply:
        """Return the latest changes of a model's policy, or of all, latest first."""

        async def read(parts: ControlParts) -> Reply:
            labels = await _labels(parts, model_name)
            return _answer(audit_document(await parts.registry.list_audit(model_name, limit), labels))

        return await self._ask(self._reads, model_name or "", read, caller.seconds(READ_SECONDS))

    # -- reports -------------------------------------------------------------------------------------------------------

    async def report_ab(self, question: AbQuestion, version: str | None, caller: Caller) -> Reply:
        """Return whether the challenger, or the arm that ``version`` names, is better; a look that is due is taken.

        Raises:
            NotRegistered: There is no such model or version, or nothing to compare.
            ValueError: ``version`` is the champion.
        """

        async def read(parts: ControlParts) -> Reply:
            model, asked = question.model_name, question
            label = await _label_of(parts, model)
            if version is not None:
                allocations = await parts.experiment_log.allocations(model)
                asked = question._replace(version_id=named_b(allocations, await _labels(parts, model), model, version))
            found = await report_ab(parts.experiment_log, parts.experiments, asked)
            return _answer(ab_document(found, model, question.metric, label))

        return await self._ask(self._reads, question.model_name, read, caller.seconds(REPORT_SECONDS))

    async def report_shadow(self, question: ShadowQuestion, caller: Caller) -> Reply:
        """Return how the shadow compares with the champion.

        Raises:
            NotRegistered: There is no such model, or it never had a shadow.
        """

        async def read(parts: ControlParts) -> Reply:
            label = await _label_of(parts, question.model_name)
            return _answer(
                shadow_document(await report_shadow(parts.experiment_log, question), question.model_name, label)
            )

        return await self._ask(self._reads, question.model_name, read, caller.seconds(REPORT_SECONDS))

    async def report_drift(self, question: DriftQuestion, caller: Caller) -> Reply:
        """Return what has drifted from its baseline.

        Raises:
            NotRegistered: There is no such model or version.
        """

        async def read(parts: ControlParts) -> Reply:
            view = await view_drift(parts.metrics, parts.registry, question)
            return _answer({"report": drift_document(view)})

        return await self._ask(self._reads, question.model_name, read, caller.seconds(REPORT_SECONDS))

    # ------------------------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        pool: WorkerPool[ControlParts],
        model_name: str,
        work: Callable[[ControlParts], Awaitable[T]],
        seconds: float,
    ) -> T:
        _require_possible(model_name)
        try:
            return await pool.carry_out(work, seconds)
        except (RegistryUnavailable, MigrationNeeded) as problem:
            _log.warning("control.failed", code=problem.code, why=problem.detail)
            # Addresses and statements are for the log; what helps is for the caller.
            raise type(problem)(hint=problem.next_step) from problem

    async def _require_ready(self, model_name: str, version: str) -> None:
        async with self._control.probe() as probe:
            await require_ready(probe, model_name, version)


def _answer(document: Mapping[str, Any], status: int = 200, *headers: tuple[bytes, bytes]) -> Reply:
    return Reply(status, [JSON, *headers], json_text(document))


def _etag(policy: PolicyRecord) -> tuple[bytes, bytes]:
    return b"etag", b'"%d"' % policy.generation


def _fresh_salt() -> str:
    return token_hex(SALT_BYTES)


def _id_of(rollout_id: str) -> int:
    number = number_of(rollout_id)
    if number is None:
        raise NotRegistered("there is no such rollout", hint="GET /v1/models/{model}/rollouts lists them.")
    return number


def _require_possible(model_name: str) -> None:
    """Refuse what can be no model's name before it is put into a query."""
    if len(model_name) > MAX_NAME or "\0" in model_name:
        raise NotRegistered("there is no such model", hint="GET /v1/models lists what is served.")


async def _labels(parts: ControlParts, model_name: str | None) -> dict[int, str]:
    return {version.id: version.version for version in await parts.registry.list_versions(model_name)}


async def _label_of(parts: ControlParts, model_name: str) -> Label:
    await parts.registry.show_model(model_name)
    labels = await _labels(parts, model_name)
    return lambda version_id: version_label(version_id, labels)


async def _reach(parts: ControlParts, model_name: str, generation: int) -> tuple[Confirmed, dict[str, int] | None]:
    """Return how many proxies act on a generation, and the calls under way by version as live proxies report them."""
    confirmed, reach = await wait_for_proxies(parts.rollouts, model_name, generation, CONFIRM_SECONDS)
    if not confirmed.proxies:
        return confirmed, None
    labels = await _labels(parts, model_name)
    return confirmed, {labels[number]: calls for number, calls in reach.in_flight.items() if number in labels}


async def _explained(parts: ControlParts, model_name: str, problem: GenerationMoved) -> GenerationMoved:
    """Return the refusal of a change with whose change it would have overwritten."""
    policy = (await parts.registry.show_model(model_name)).policy
    if policy is None:
        return problem
    return GenerationMoved(
        f"the policy is at generation {policy.generation} since {policy.updated_at:%Y-%m-%dT%H:%M:%SZ}, "
        f"by {policy.updated_by}",
        hint="GET the policy again, look at it, and repeat the change with its ETag.",
    )
