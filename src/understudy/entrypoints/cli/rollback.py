"""``understudy rollback``: all traffic back, at once."""

import asyncio
import time
from typing import NamedTuple

import typer
from rich.text import Text

from understudy.entrypoints.cli.failure import ExitCode
from understudy.entrypoints.cli.options import AsJson, Reason, Yes, confirm_traffic_move, required_reason
from understudy.entrypoints.cli.registry import origin_of_command
from understudy.entrypoints.cli.rendering import show
from understudy.entrypoints.cli.rollouts import Opened, with_rollouts
from understudy.entrypoints.cli.version import ModelName
from understudy.ports import PolicyRecord, RollbackRecord

app = typer.Typer(add_completion=False)
DRAIN_SECONDS = 30.0
POLL_SECONDS = 0.1


class Confirmed(NamedTuple):
    """How far a rollback has come: seconds since it was committed; ``None`` for what did not happen in time."""

    proxies: int
    proxies_on_generation: int
    seconds: float | None


@app.command()
def rollback(*, model: ModelName, reason: Reason = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Send all traffic back: weight 0, or after a promotion the champion before. Doing it twice is harmless."""
    origin = origin_of_command(required_reason(reason, dry_run=False))

    async def take_back(opened: Opened) -> tuple[RollbackRecord, float, Confirmed | None]:
        before = (await opened.registry.show_model(model)).policy
        if before is not None:
            confirm_traffic_move(model, _what_moves(before), yes=yes)
        began = time.monotonic()
        done = await opened.rollouts.roll_back(model, origin)
        committed = time.monotonic() - began
        return done, committed, await _confirmed(opened, model, done.generation) if done.changed else None

    done, committed, confirmed = with_rollouts(take_back)
    document = {
        **done._asdict(),
        "changed": done.changed,
        "confirmed": None if confirmed is None else confirmed._asdict(),
    }
    show({"rollback": document}, *_lines(done, committed, confirmed), as_json=as_json)
    if confirmed is not None and confirmed.seconds is None:
        raise typer.Exit(ExitCode.DEGRADED)


async def _confirmed(opened: Opened, model: str, generation: int) -> Confirmed:
    """Wait until every proxy that is present acts on the generation."""
    began = time.monotonic()
    while True:
        policy = (await opened.registry.show_model(model)).policy
        on_it, proxies = (0, 0) if policy is None else (policy.proxies_on_generation, policy.proxies)
        elapsed = time.monotonic() - began
        if policy is None or policy.generation > generation or on_it >= proxies:
            return Confirmed(proxies, on_it, elapsed)
        if elapsed >= DRAIN_SECONDS:
            return Confirmed(proxies, on_it, None)
        await asyncio.sleep(POLL_SECONDS)


def _what_moves(policy: PolicyRecord) -> str:
    split = f"{policy.champion} {100 - policy.challenger_weight} %"
    if policy.challenger is not None:
        split += f", {policy.challenger} {policy.challenger_weight} %"
    return f"This sends all traffic of {policy.model_name} back (now: {split})"


def _lines(done: RollbackRecord, committed: float, confirmed: Confirmed | None) -> list[Text]:
    if confirmed is None:
        return [Text(f"{done.model_name}: {done.did}"), Text(f"→ understudy model show {done.model_name}")]
    lines = [
        Text("✔ ", "green")
        .append(f"{done.did} committed as generation {done.generation}")
        .append(f"   {committed:.2f} s", "dim")
    ]
    count = f"{confirmed.proxies_on_generation} of {confirmed.proxies} proxies on generation {done.generation}"
    if confirmed.seconds is None:
        lines.append(Text("✖ ", "bold red").append(f"{count} after {DRAIN_SECONDS:.0f} s: look at the others"))
        lines.append(Text("→ understudy doctor"))
    else:
        lines.append(Text("✔ ", "green").append(count).append(f"   {confirmed.seconds:.2f} s", "dim"))
        lines.append(Text(f"{done.champion} answers everybody. → understudy rollout show {done.model_name}"))
    return lines
