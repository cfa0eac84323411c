"""``understudy rollback``: send all traffic of a model back, at once."""

import time
from shlex import quote
from typing import Annotated, NamedTuple

import typer
from rich.text import Text

from understudy.bootstrap.control_plane import ControlPlane
from understudy.core.routing.arms import arm_percents
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS, LIVE_SECONDS, stale_proxies_words
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.errors import ExitCode
from understudy.entrypoints.cli.shared.options import (
    AsJson,
    DryRun,
    ModelName,
    Yes,
    confirm_traffic_move,
)
from understudy.entrypoints.cli.shared.rendering import show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.entrypoints.cli.shared.texts.rollback_text import abort_command, nothing_words, restore_commands
from understudy.entrypoints.documents.rollbacks import rollback_document
from understudy.ports.registry.registry import Actor, PolicyRecord
from understudy.ports.rollout.rollout_store import RollbackRecord
from understudy.rollout.propagation import Drained, Propagation, wait_for_drain, wait_for_propagation

app = typer.Typer(add_completion=False)
DRAIN_SECONDS = 30.0
"""Longest wait for the proxies and for the calls that are under way, together."""


_NO_PROXY = f"no live proxy: none has reported within {LIVE_SECONDS:.0f} s, so the rollback is not confirmed"


class _TakenBack(NamedTuple):
    done: RollbackRecord
    committed: float
    """Seconds that it took."""
    confirmed: Propagation | None = None
    drained: Drained | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every live proxy has heard of it, at least one, and nothing is under way any more."""
        waited = (self.confirmed, self.drained)
        return all(wait is None or wait.seconds is not None for wait in waited)


@app.command()
def rollback(
    *,
    model: ModelName,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept in the audit.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send all traffic back: weight 0 and no further arms, or else the champion before.

    It undoes the newest move of traffic and reaches no further back, so doing it twice is harmless: the second time
    there is nothing to roll back, and it leaves with 1. A reason may be left out: a rollback does not wait for words.
    """
    actor = actor_of_command(reason)
    if dry_run:
        _show_dry_run(model, actor, as_json=as_json)
        return

    async def take_back(control_plane: ControlPlane) -> _TakenBack:
        rollbacks = control_plane.rollbacks
        if not yes:
            before, tried = await _try(control_plane, model, actor)
            if before is not None and tried.changed:
                confirm_traffic_move(model, _what_moves(before, tried.champion), yes=yes)
        began = time.monotonic()
        done = await rollbacks.roll_back(model, actor)
        committed = time.monotonic() - began
        if not done.changed:
            return _TakenBack(done, committed)
        confirmed, _ = await wait_for_propagation(rollbacks, model, done.generation, DRAIN_SECONDS)
        if not confirmed.proxies:
            return _TakenBack(done, committed, confirmed)
        patience = max(0.0, DRAIN_SECONDS - (time.monotonic() - began))
        drained = await wait_for_drain(rollbacks, model, done.without_calls, patience)
        return _TakenBack(done, committed, confirmed, drained)

    taken = with_control_plane(take_back)
    document = rollback_document(taken.done, taken.confirmed)
    document["drained"] = None if taken.drained is None else taken.drained._asdict()
    show({"rollback": document | {"dry_run": False}}, *_lines(taken), as_json=as_json)
    if not taken.done.changed:
        raise typer.Exit(ExitCode.PROBLEM)
    if not taken.is_whole:
        raise typer.Exit(ExitCode.DEGRADED)


async def _try(control_plane: ControlPlane, model: str, actor: Actor) -> tuple[PolicyRecord | None, RollbackRecord]:
    """Return a model's policy, and what a rollback would do; nothing is changed."""
    before = (await control_plane.registry.show_model(model)).policy
    return before, await control_plane.rollbacks.roll_back(model, actor, dry_run=True)


def _show_dry_run(model: str, actor: Actor, *, as_json: bool) -> None:
    before, tried = with_control_plane(lambda control_plane: _try(control_plane, model, actor))
    document = rollback_document(tried, None) | {"drained": None, "dry_run": True}
    if before is None or not tried.changed:
        show({"rollback": document}, *_lines(_TakenBack(tried, 0.0)), as_json=as_json)
        raise typer.Exit(ExitCode.PROBLEM)
    head = Text(f"Would roll {model} back; nothing was changed.", "bold")
    what = f"{tried.did} as generation {tried.generation} ({_now_and_then(before, tried.champion)})"
    show({"rollback": document}, head, Text(what), as_json=as_json)


def _what_moves(policy: PolicyRecord, champion: str) -> str:
    return f"This sends all traffic of {policy.model_name} back ({_now_and_then(policy, champion)})"


def _now_and_then(policy: PolicyRecord, champion: str) -> str:
    shares = arm_percents(policy.split.ranges)
    versions = dict.fromkeys([policy.champion, policy.challenger, *shares])
    split = ", ".join(f"{version} {shares.get(version, 0)} %" for version in versions if version is not None)
    return f"now: {split}; then {champion} answers every call"


def _lines(taken: _TakenBack) -> list[Text]:
    done, confirmed = taken.done, taken.confirmed
    if confirmed is None:
        then = Text(f"{done.champion} answers every call. → understudy audit list {quote(done.model_name)}")
        if commands := restore_commands(done):
            then = Text(f"{done.champion} answers every call. → {', then '.join(commands)}")
        elif done.rollout_id is not None:
            # One that warms up has no share yet, and will.
            end_it = f"{abort_command(done.model_name)} ends it"
            then = Text(f"{done.champion} answers every call now; rollout {done.rollout_id} is not over. → {end_it}")
        return [_failed(f"{done.model_name}: {nothing_words(done)}"), then]
    lines = [_line(f"{done.did} committed as generation {done.generation}", taken.committed)]
    lines += _reach_lines(confirmed, taken.drained, done.generation)
    if not taken.is_whole:
        return [*lines, Text("→ understudy doctor")]
    return [*lines, Text(f"{done.champion} answers every call. → understudy audit list {quote(done.model_name)}")]


def _reach_lines(confirmed: Propagation, drained: Drained | None, generation: int) -> list[Text]:
    """Return which proxies act on a generation, and what is under way at versions that get no more."""
    count = f"{confirmed.proxies_on_generation} of {confirmed.proxies} live proxies on generation {generation}"
    unseen = f"{HIDDEN_WORDS}: the rollback is not confirmed" if confirmed.proxies_hidden else _NO_PROXY
    lines = [_line(count, confirmed.seconds) if confirmed.proxies else _warning(unseen)]
    if confirmed.stale.count:
        lines.append(_warning(stale_proxies_words(confirmed.stale)))
    if drained is None:
        return lines
    calls = (
        f"{drained.calls} calls in flight on other versions drained" if drained.calls else "no call in flight is left"
    )
    if drained.left:
        calls = f"{drained.left} calls in flight on other versions are left"
    elif drained.seconds is None:
        return [*lines, _warning(f"calls in flight cannot be counted: {HIDDEN_WORDS}")]
    return [*lines, _line(calls, drained.seconds)]


def _warning(text: str) -> Text:
    return Text("! ", "yellow").append(text)


def _failed(text: str) -> Text:
    return Text("✖ ", "bold red").append(text)


def _line(text: str, seconds: float | None) -> Text:
    if seconds is None:
        return _failed(f"{text} after {DRAIN_SECONDS:.0f} s: look at the others")
    return Text("✔ ", "green").append(text).append(f"   {seconds:.2f} s", "dim")
