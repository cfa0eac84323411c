"""``understudy rollback``: all traffic back, at once."""

import time

import typer
from rich.text import Text

from understudy.core.arms import arm_percents
from understudy.entrypoints.cli.failure import ExitCode
from understudy.entrypoints.cli.options import AsJson, Reason, Yes, confirm_traffic_move, required_reason
from understudy.entrypoints.cli.registry import origin_of_command
from understudy.entrypoints.cli.rendering import show
from understudy.entrypoints.cli.rollouts import Opened, with_rollouts
from understudy.entrypoints.cli.version import ModelName
from understudy.entrypoints.documents.rollouts import rollback_document
from understudy.ports import PolicyRecord, RollbackRecord
from understudy.rollout.confirmation import Confirmed, wait_for_proxies

app = typer.Typer(add_completion=False)
DRAIN_SECONDS = 30.0


@app.command()
def rollback(*, model: ModelName, reason: Reason = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Send all traffic back: weight 0 and no further arms, or after a promotion the champion before.

    Doing it twice is harmless.
    """
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
    document = {"rollback": rollback_document(done, confirmed)}
    show(document, *_lines(done, committed, confirmed), as_json=as_json)
    if confirmed is not None and confirmed.seconds is None:
        raise typer.Exit(ExitCode.DEGRADED)


async def _confirmed(opened: Opened, model: str, generation: int) -> Confirmed:
    confirmed, _ = await wait_for_proxies(opened.rollouts, model, generation, DRAIN_SECONDS)
    return confirmed


def _what_moves(policy: PolicyRecord) -> str:
    shares = arm_percents(policy.split.ranges)
    versions = dict.fromkeys([policy.champion, policy.challenger, *shares])
    split = ", ".join(f"{version} {shares.get(version, 0)} %" for version in versions if version is not None)
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
