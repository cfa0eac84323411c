"""``RolloutOperations`` over the database: this process prepares, warms up and starts."""

import time
from collections.abc import Awaitable, Callable, Sequence

from understudy.bootstrap.session import Session
from understudy.core.rollout.state import Command
from understudy.errors import NotRegistered
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView, UnreadableRollout
from understudy.rollout.commands import CommandResult, run_command
from understudy.rollout.operations import FoundRollouts, StartAsked
from understudy.rollout.start.start import ENTITIES_WAIT_SECONDS, OUTCOMES_WAIT_SECONDS, Prepared, prepare
from understudy.rollout.warm_up.warm_up import require_ready
from understudy.settings import Settings


class StoredRollouts:
    """Asks one database: for a command, and for a proxy's callers.

    Args:
        session: The stores, under the login that changes are made by; they are the caller's to close.
        budget_ratio: The challenger's share of a call's deadline.
        warm_up: Goes on only with a version that answers example calls, from where this process reaches it.
    """

    def __init__(
        self, session: Session, *, budget_ratio: float, warm_up: Callable[[StartAsked], Awaitable[None]]
    ) -> None:
        self._session = session
        self._budget_ratio = budget_ratio
        self._warm_up = warm_up

    async def prepare(self, asked: StartAsked) -> Prepared:
        """Return what a start would mean at today's traffic."""
        session = self._session
        return await prepare(
            session.registry,
            session.windows,
            asked.model_name,
            asked.version,
            asked.plan,
            now=time.time(),
            budget_ratio=self._budget_ratio,
            freezes=asked.freezes,
            expect_different_scores=asked.expect_different_scores,
            entities=session.history(ENTITIES_WAIT_SECONDS),
            outcome_before=session.outcome_before(OUTCOMES_WAIT_SECONDS),
        )

    async def require_ready(self, asked: StartAsked) -> None:
        """Have the version answer example calls."""
        await self._warm_up(asked)

    async def start(self, asked: StartAsked, prepared: Prepared, salt: str | None, actor: Actor) -> RolloutRecord:
        """Begin what was prepared, if the policy is still the one that it was prepared for."""
        del asked  # what was prepared is what is started
        return await self._session.rollouts.start(
            prepared.rollout(salt), actor, expected_generation=prepared.generation
        )

    async def listing(
        self, model_name: str | None = None, limit: int = 20
    ) -> Sequence[RolloutRecord | UnreadableRollout]:
        """Return the newest rollouts, newest first."""
        return await self._session.rollouts.listing(model_name, limit)

    async def found(self, model_name: str | None, limit: int) -> FoundRollouts:
        """Return the newest rollouts with the policies of their models."""
        found = await self.listing(model_name, limit)
        if model_name is not None and not found:
            await self._session.registry.show_model(model_name)  # says which models there are
        names = [one.state.model_name for one in found if not isinstance(one, UnreadableRollout)]
        return FoundRollouts(found, await self._session.rollouts.policies(names))

    async def newest(self, model_name: str) -> RolloutView:
        """Return a model's newest rollout."""
        return await self._session.rollouts.view(await self._session.rollouts.latest_id(model_name))

    async def numbered(self, model_name: str, rollout_id: int) -> RolloutView:
        """Return a model's rollout by its number."""
        view = await self._session.rollouts.view(rollout_id)
        if view.record.state.model_name != model_name:
            raise NotRegistered(f"rollout {rollout_id} is not one of {model_name}", hint="understudy rollout list.")
        return view

    async def again(self, seen: RolloutView) -> RolloutView:
        """Return a rollout as it is now."""
        return await self._session.rollouts.view(seen.record.id)

    async def command(self, model_name: str, command: Command) -> CommandResult:
        """Carry out a command to a model's newest rollout."""
        return await run_command(self._session.rollouts, model_name, None, command)


def rollouts_of_command(session: Session, settings: Settings) -> StoredRollouts:
    """Return the rollouts of a command: it warms a version up from here, or has live proxies do it."""

    async def warm_up(asked: StartAsked) -> None:
        from understudy.bootstrap.upstream.backends import proxy_warm_up, warm_up_probe  # noqa: PLC0415 - gRPC, to start one

        probe = warm_up_probe(settings, session.policies, proxy_warm_up(settings, session.warm_ups))
        await require_ready(probe, asked.model_name, asked.version)

    return StoredRollouts(session, budget_ratio=settings.challenger_budget_ratio, warm_up=warm_up)
