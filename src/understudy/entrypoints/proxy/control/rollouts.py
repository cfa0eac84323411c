"""Calls about rollouts: start, list, show, command, roll back.

Each also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import NamedTuple
from urllib.parse import quote

from understudy.bootstrap.session import Session
from understudy.bootstrap.stored_rollouts import StoredRollouts
from understudy.core.rollout.state import Command, CommandKind
from understudy.entrypoints.documents.rollbacks import reach_document, rollback_document
from understudy.entrypoints.documents.rollouts import (
    by_hand_document,
    command_document,
    listing_document,
    start_document,
    status_document,
)
from understudy.entrypoints.proxy.control.bodies import (
    Approval,
    Resumption,
    RollbackAsked,
    RolloutStart,
    command_body,
    read_whole_number,
)
from understudy.entrypoints.proxy.control.handler import (
    READ_SECONDS,
    REPORT_SECONDS,
    WRITE_SECONDS,
    Bulkhead,
    ControlCall,
    answer,
    version_labels,
)
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.errors import DeadlineExceeded, GenerationMoved, NotRegistered, Overloaded, PolicyRefused, RegistryError
from understudy.ports.rollout.rollout_store import RollbackRecord, UnreadableRollout
from understudy.rollout.commands import run_command
from understudy.rollout.manual_rollback import manual_rollback
from understudy.rollout.operations import StartAsked
from understudy.rollout.propagation import Propagation, wait_for_propagation
from understudy.rollout.start.start import require_same_inputs
from understudy.rollout.status import StatusReader
from understudy.rollout.verdicts.replay import judged_again
from understudy.rollout.warm_up.warm_up import require_ready

START_SECONDS = 45.0
"""The warm-up alone may take most of it."""
CONFIRM_SECONDS = 2.0
"""Longest time that a rollback waits for the proxies."""
SALT_BYTES = 4
NEWEST = "newest"
"""In the place of an id: the model's newest rollout."""


async def start_rollout(call: ControlCall, body: bytes, *, dry_run: bool) -> Reply:
    """Start a rollout once the version has answered a warm-up; with ``dry_run`` only say what it would be.

    Raises:
        MalformedBody, BodyInvalid: The body.
        NotRegistered: The model has no policy, or no such version.
        PolicyRefused: The plan cannot be used, the version is champion already, or a rollout is open.
        VersionNotReady: Its model servers do not answer, or it needs other inputs than the champion.
        GenerationMoved: The policy was changed during the warm-up.
    """
    asked = RolloutStart.read(body, dry_run=dry_run)
    main = asyncio.get_running_loop()

    wanted = StartAsked(call.model_name, asked.version, asked.plan, asked.freezes, asked.expect_different_scores)

    async def ask_version() -> None:
        async with call.handler.probe() as probe:
            await require_ready(probe, call.model_name, asked.version)

    async def warm_up(_: StartAsked) -> None:
        # gRPC connections belong to one event loop: the one that predictions use.
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ask_version(), main))

    async def start(parts: Session) -> Reply:
        budget_ratio = call.handler.challenger_budget_ratio
        rollouts = StoredRollouts(parts, budget_ratio=budget_ratio, warm_up=warm_up)
        prepared = await rollouts.prepare(wanted)
        if dry_run:
            return answer(start_document(prepared, None))
        if asked.generation is not None and asked.generation != prepared.generation:
            raise GenerationMoved(f"the policy is at generation {prepared.generation}, not {asked.generation}")
        require_same_inputs(prepared)
        await rollouts.require_ready(wanted)
        salt = asked.hashed_salt(lambda: token_hex(SALT_BYTES))
        record = await rollouts.start(wanted, prepared, salt, call.actor(asked.reason))
        place = f"/v1/models/{quote(call.model_name, safe='')}/rollouts/{record.id}".encode()
        return answer(start_document(prepared, record), 201, (b"location", place))

    return await call.run(Bulkhead.WRITE, start, START_SECONDS)


async def list_rollouts(call: ControlCall, limit: int) -> Reply:
    """Return a model's newest rollouts, newest first."""

    async def read(parts: Session) -> Reply:
        await parts.registry.show_model(call.model_name)
        found = await parts.rollouts.listing(call.model_name, limit)
        return answer(listing_document(found, await parts.rollouts.policies([call.model_name])))

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def list_all_rollouts(call: ControlCall, limit: int, permitted: frozenset[str] | None) -> Reply:
    """Return the newest rollouts of all models that the key may read, newest first."""

    async def read(parts: Session) -> Reply:
        if permitted is None:
            found = list(await parts.rollouts.listing(None, limit))
        else:
            of_models = [one for name in permitted for one in await parts.rollouts.listing(name, limit)]
            found = sorted(of_models, key=lambda one: one.id, reverse=True)[:limit]
        names = [one.state.model_name for one in found if not isinstance(one, UnreadableRollout)]
        return answer(listing_document(found, await parts.rollouts.policies(names)))

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def show_rollout(call: ControlCall, rollout_id: str, *, columns: int | None = None, utc: bool = False) -> Reply:
    """Return a rollout's status, its events, and what each stored verdict is when it is judged again.

    With ``columns`` also as ``understudy rollout show`` shows it on a terminal that wide, without what the log has.

    Raises:
        NotRegistered: The model has no such rollout.
    """
    number = None if rollout_id == NEWEST else _id_of(rollout_id)

    async def read(parts: Session) -> Reply:
        if columns is not None:
            from understudy.entrypoints.cli.rollout.screen import rollout_screen  # noqa: PLC0415 - rich, for few calls
            from understudy.entrypoints.cli.shared.screens import drawn_document  # noqa: PLC0415 - as above

            draw = partial(rollout_screen, parts, call.model_name, number, utc=utc, with_log=False)
            return answer(await drawn_document(draw, columns))
        reader = StatusReader(parts.rollouts, parts.windows, parts.measure_outcome, call.model_name, number)
        status = await reader.read()
        by_hand = await manual_rollback(parts.registry, status.view.record.state)
        return answer(status_document(status, judged_again(status.events)) | by_hand_document(by_hand))

    return await call.run(Bulkhead.READ, read, REPORT_SECONDS)


async def command_rollout(call: ControlCall, rollout_id: str, kind: CommandKind, body: bytes) -> Reply:
    """Pause, resume, promote, approve or abort a rollout; the answer says when the command changed nothing.

    Raises:
        MalformedBody, BodyInvalid: The body.
        NotRegistered: The model has no such rollout.
        GenerationMoved: The rollout kept changing while the command was applied.
    """
    number = _id_of(rollout_id)
    asked = command_body(kind).read(body)
    expects = isinstance(asked, Resumption) and asked.expect_different_scores
    command = Command(kind, call.key_id, asked.reason or "", expects)
    if isinstance(asked, Approval):
        command = command._replace(is_ahead=asked.ahead, to_percent=asked.to_percent)

    async def give(parts: Session) -> Reply:
        return answer(command_document(await run_command(parts.rollouts, call.model_name, number, command)))

    return await call.run(Bulkhead.WRITE, give, WRITE_SECONDS)


async def roll_back(call: ControlCall, body: bytes) -> Reply:
    """Send all traffic back at once, and say how many proxies act on that; doing it again changes nothing.

    Raises:
        MalformedBody, BodyInvalid: The body.
        NotRegistered: There is no such model.
        PolicyRefused: The model has no policy.
    """
    asked = RollbackAsked.read(body)
    actor = call.actor(asked.reason)

    async def take_back(parts: Session) -> RollbackRecord:
        try:
            return await parts.rollouts.roll_back(call.model_name, actor, dry_run=asked.dry_run)
        except PolicyRefused:
            # Says of an unknown model that it is unknown; not before, so that the rollback waits for no other reading.
            await parts.registry.show_model(call.model_name)
            raise

    done = await call.run(Bulkhead.ROLLBACK, take_back, WRITE_SECONDS)
    seen = _NOT_SEEN if asked.dry_run else await _propagation(call, done)
    document = rollback_document(done, seen.confirmed) | {"in_flight": seen.in_flight}
    return answer({"rollback": document | {"versions_without_calls": seen.without_calls, "dry_run": asked.dry_run}})


class _Seen(NamedTuple):
    """What is known after a rollback; ``None`` where it cannot be read: the rollback is done all the same."""

    confirmed: Propagation | None
    in_flight: dict[str, int] | None
    """Calls under way by version, as live proxies report them."""
    without_calls: list[str] | None
    """Versions that get no calls any more."""


_NOT_SEEN = _Seen(None, None, None)


async def _propagation(call: ControlCall, done: RollbackRecord) -> _Seen:
    """Return how many proxies act on a rollback, and what is under way."""

    async def wait(parts: Session) -> _Seen:
        name, generation = call.model_name, done.generation
        confirmed, reach = await wait_for_propagation(parts.rollouts, name, generation, CONFIRM_SECONDS)
        if not confirmed.proxies:
            return _Seen(confirmed, None, None)
        labels = await version_labels(parts, name)
        without_calls = [labels[number] for number in done.without_calls if number in labels]
        return _Seen(confirmed, _by_label(reach.in_flight, labels), without_calls)

    with suppress(RegistryError, Overloaded, DeadlineExceeded):
        return await call.run(Bulkhead.CONFIRMATION, wait, CONFIRM_SECONDS + 1)
    return _NOT_SEEN


async def show_reach(call: ControlCall, generation: int | None) -> Reply:
    """Return how many live proxies act on a policy, or on a generation of it, and the calls under way by version.

    Raises:
        NotRegistered: The model has no policy.
    """

    async def read(parts: Session) -> Reply:
        reach = await parts.rollouts.reach(call.model_name, generation)
        labels = await version_labels(parts, call.model_name)
        return answer({"reach": reach_document(reach) | {"in_flight": _by_label(reach.in_flight, labels)}})

    return await call.run(Bulkhead.CONFIRMATION, read, READ_SECONDS)


def _by_label(in_flight: Mapping[int, int], labels: Mapping[int, str]) -> dict[str, int]:
    return {labels[number]: calls for number, calls in in_flight.items() if number in labels}


def _id_of(rollout_id: str) -> int:
    number = read_whole_number(rollout_id)
    if number is None:
        raise NotRegistered("there is no such rollout", hint="GET /v1/models/{model}/rollouts lists them.")
    return number
