"""``understudy rollout``: start, follow and steer rollouts, which take a challenger to the champion's place."""

import asyncio
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from secrets import token_hex
from shlex import quote
from typing import Annotated

import typer
from rich.text import Text

from understudy.bootstrap.http_control_plane import model_path
from understudy.bootstrap.session import Session
from understudy.core.rollout.state import Command, CommandKind, Kind, Phase
from understudy.core.routing.proxy_liveness import stale_proxies_words
from understudy.entrypoints.cli.rollout.following import followed, followed_at_proxy
from understudy.entrypoints.cli.rollout.page import rollout_page
from understudy.entrypoints.cli.rollout.screen import drawn, log_notes, rollout_screen
from understudy.entrypoints.cli.rollout.slices_text import slices_view
from understudy.entrypoints.cli.rollout.text import by_hand_lines, end_words, ended_by, listing, rollout_words
from understudy.entrypoints.cli.rollout.watch import (
    WATCH_SECONDS,
)
from understudy.entrypoints.cli.shared.actor import actor_of_command, this_login
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import (
    AsJson,
    DryRun,
    Limit,
    ModelName,
    Reason,
    Utc,
    Yes,
    confirm_traffic_move,
    required_reason,
)
from understudy.entrypoints.cli.shared.page_file import write_page
from understudy.entrypoints.cli.shared.policy_changes.rollout_plan import (
    ExpectDifferentScores,
    Freezes,
    PlanSource,
    VersionName,
    first_share_words,
    plan_source_of,
    prepared_rollout_texts,
)
from understudy.entrypoints.cli.shared.rendering import advise, show
from understudy.entrypoints.cli.shared.running.reminder import Reminder
from understudy.entrypoints.cli.shared.screens import AtProxy, Drawn, show_screen
from understudy.entrypoints.cli.shared.session import with_control_plane, with_session, with_session_or_proxy
from understudy.entrypoints.cli.shared.times import seconds_of
from understudy.entrypoints.documents.rollouts import (
    command_document,
    listing_document,
    rollout_document,
    slices_document,
    start_document,
)
from understudy.errors import RegistryUnavailable
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView
from understudy.rollout.history import RolloutHistory, history_of
from understudy.rollout.manual_rollback import manual_rollback
from understudy.rollout.operations import RolloutOperations, StartAsked
from understudy.rollout.start.start import Prepared, require_same_inputs
from understudy.rollout.status import RolloutStatus, StatusReader

app = typer.Typer(no_args_is_help=True, help="Start, follow and steer rollouts.", add_completion=False)
NO_SALT = "none"
SALT_BYTES = 4

Unasked = Annotated[bool, typer.Option("--yes", help="Taken as by the other commands; nothing is asked here.")]
RolloutId = Annotated[
    int | None, typer.Argument(metavar="[ID]", min=1, max=2**63 - 1, help="By default the model's newest one.")
]


@app.command()
def start(
    *,
    model: ModelName,
    version: VersionName,
    plan: PlanSource = None,
    freeze: Freezes = None,
    expect_different_scores: ExpectDifferentScores = False,
    salt: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|none", help="By default the plan's own, else a fresh one: other entities come first."
        ),
    ] = None,
    reason: Reason = None,
    watch_it: Annotated[bool, typer.Option("--watch", help="Follow it until it ends.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Start a rollout; the monitor moves it on, and takes it back when the challenger is worse."""
    actor = actor_of_command(required_reason(reason, dry_run=dry_run, yes=yes))
    asked = StartAsked(model, version, plan_source_of(plan), freeze or (), expect_different_scores)

    async def begin(rollouts: RolloutOperations) -> tuple[Prepared, RolloutRecord | None]:
        prepared = await rollouts.prepare(asked)
        if dry_run:
            return prepared, None
        require_same_inputs(prepared)
        await rollouts.require_ready(asked)
        if not yes:
            for words in prepared.warnings:
                typer.echo(f"! {words}", err=True)
        confirm_traffic_move(model, first_share_words(prepared), yes=yes)
        chosen = None if salt == NO_SALT else salt or prepared.plan.salt or token_hex(SALT_BYTES)
        return prepared, await rollouts.start(asked, prepared, chosen, actor)

    prepared, record = with_control_plane(lambda control_plane: begin(control_plane.rollouts))
    text = prepared_rollout_texts(
        prepared, record, asked_plan=plan, freezes=freeze or (), expects_scores=expect_different_scores
    )
    show(start_document(prepared, record), *text, as_json=as_json)
    if record is not None and watch_it:
        watch(model=model, json_lines=as_json)


@app.command("show")
def show_rollout(
    *,
    model: ModelName,
    rollout_id: RolloutId = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as a page with charts.")] = None,
    slices: Annotated[bool, typer.Option("--slices", help="Show both sides' figures of each slice.")] = False,
    utc: Utc = False,
    as_json: AsJson = False,
) -> None:
    """Show a rollout: its steps, its checks, what happened, and each verdict judged again from what it rested on."""
    if html is None and not slices:

        async def draw(session: Session) -> Drawn:
            return await rollout_screen(session, model, rollout_id, utc=utc, with_log=not as_json)

        place = model_path(model, "rollouts", "newest" if rollout_id is None else str(rollout_id))
        show_screen(draw, AtProxy(place, {"utc": str(utc).lower()}), as_json=as_json)
        return
    status, screen, history, notes = with_session(
        lambda session: _with_history(session, model, rollout_id, utc=utc, with_log=not as_json)
    )
    document, texts = screen
    if html is not None:
        write_page(html, rollout_page(status, history, [note.plain.strip() for note in notes]))
    if slices:
        document = {**document, "slices": slices_document(history.slices)}
        texts = [*texts, "", *slices_view(history.slices)]
    show(document, *texts, as_json=as_json)
    if html is not None and not as_json:
        advise(f"Written: {html}")


async def _with_history(
    session: Session, model: str, rollout_id: int | None, *, utc: bool, with_log: bool
) -> tuple[RolloutStatus, Drawn, RolloutHistory, Sequence[Text]]:
    """Return a rollout's status and its screen, with what pages and slices are drawn from, and what a page adds."""
    status = await _status_reader(session, model, rollout_id).read()
    by_hand = await manual_rollback(session.registry, status.view.record.state)
    notes = await log_notes(session, status) if with_log else ()
    windows = await session.windows.of_rollout(status.view.record.id)
    sliced = await session.windows.slices_of_rollout(status.view.record.id, 0.0, inf)
    history = history_of(status.view, windows, status.events, sliced, status.metrics, judgements=status.judgements)
    screen = drawn(status, by_hand, notes, utc=utc)
    return status, screen, history, [*by_hand_lines(by_hand), *notes]


@app.command("list")
def list_rollouts(
    *,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Only this model's.")] = None,
    limit: Limit = 20,
    utc: Utc = False,
    as_json: AsJson = False,
) -> None:
    """List the newest rollouts, and the guards of shares that were set by hand: both are counted by one id."""
    found, policies = with_control_plane(lambda control_plane: control_plane.rollouts.found(model, limit))
    show(listing_document(found, policies), listing(found, policies, utc=utc), as_json=as_json)


@app.command()
def watch(
    *,
    model: ModelName,
    json_lines: Annotated[bool, typer.Option("--json-lines", help="Print a line of JSON each second.")] = False,
) -> None:
    """Follow a rollout until it ends; leaving does not stop it."""
    try:
        phase, kind = with_session_or_proxy(
            lambda session: followed(_status_reader(session, model), as_lines=json_lines),
            lambda proxy: followed_at_proxy(proxy, model, as_lines=json_lines),
        )
    except KeyboardInterrupt:
        advise(f"It goes on without you. → understudy rollout watch {quote(model)}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    raise typer.Exit(_exit_code(phase, kind))


def _status_reader(session: Session, model: str, rollout_id: int | None = None) -> StatusReader:
    """Return what looks at a rollout."""
    return StatusReader(session.rollouts, session.windows, session.measure_outcome, model, rollout_id)


@app.command()
def wait(
    *,
    model: ModelName,
    rollout_id: RolloutId = None,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="Give up then, undecided: 30m, 6h.")] = "6h",
    until: Annotated[
        str, typer.Option(metavar="promoted|finished", help="Promoted, or the old champion retired as well.")
    ] = "promoted",
    as_json: AsJson = False,
) -> None:
    """Wait for the end of a rollout, for scripts: 0 promoted, 3 rolled back, 6 undecided.

    With --json ended_by says what took it back: monitor, abort, or hand.
    """
    if until not in ("promoted", "finished"):
        raise CommandRefused(ExitCode.USAGE, f"--until: {until!r} is neither", "--until promoted or --until finished")
    patience = seconds_of(timeout, "--timeout")

    async def waited(rollouts: RolloutOperations) -> RolloutView:
        give_up, reminder = time.monotonic() + patience, Reminder()
        began = await (rollouts.newest(model) if rollout_id is None else rollouts.numbered(model, rollout_id))
        if not as_json:
            advise(f"waiting for {rollout_words(began)}")
        while True:
            try:
                view = await rollouts.again(began)
                reminder.back()
                phase = view.record.state.phase
                if phase.is_final or (phase is Phase.PROMOTING and until == "promoted") or time.monotonic() >= give_up:
                    return view
            except RegistryUnavailable:
                if time.monotonic() >= give_up:
                    raise
                reminder.away(0.0)
            await asyncio.sleep(WATCH_SECONDS)

    view = with_control_plane(lambda control_plane: waited(control_plane.rollouts))
    document = {"rollout": rollout_document(view.record), "ended_by": ended_by(view)}
    show(document, end_words(view), as_json=as_json)
    raise typer.Exit(_exit_code(view.record.state.phase, view.record.state.kind))


@app.command()
def pause(*, model: ModelName, reason: Reason = None, yes: Unasked = False, as_json: AsJson = False) -> None:  # noqa: ARG001
    """Stop a rollout where it is; its share stays, and a challenger that gets worse is still taken back."""
    _command(model, CommandKind.PAUSE, reason, as_json=as_json)


@app.command()
def resume(
    *,
    model: ModelName,
    expect_different_scores: ExpectDifferentScores = False,
    reason: Reason = None,
    yes: Unasked = False,  # noqa: ARG001
    as_json: AsJson = False,
) -> None:
    """Let a rollout that waits go on."""
    _command(model, CommandKind.RESUME, reason, as_json=as_json, expects_different_scores=expect_different_scores)


@app.command()
def promote(*, model: ModelName, reason: Reason = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Take the next step now, without its time and its proof; at the last step that makes the champion."""
    confirm_traffic_move(model, f"This takes the rollout of {model} one step on without its proof", yes=yes)
    _command(model, CommandKind.PROMOTE, reason, as_json=as_json)


@app.command()
def approve(
    *,
    model: ModelName,
    to: Annotated[
        int | None,
        typer.Option("--to", min=1, max=100, help="Percent of the step that is meant: no other one."),
    ] = None,
    ahead: Annotated[bool, typer.Option("--ahead", help="Also before the rollout has come to the gate.")] = False,
    reason: Reason = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Approve the next step at a gate of the plan; it is taken if its proof still stands."""
    confirm_traffic_move(model, f"This lets the rollout of {model} take its next step", yes=yes)
    _command(model, CommandKind.APPROVE, reason, as_json=as_json, is_ahead=ahead, to_percent=to)


@app.command()
def abort(*, model: ModelName, reason: Reason = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """End a rollout with weight 0 and the old champion."""
    confirm_traffic_move(model, f"This ends the rollout of {model}: the old champion answers every call", yes=yes)
    _command(model, CommandKind.ABORT, reason, as_json=as_json)


def _command(
    model: str,
    kind: CommandKind,
    reason: str | None,
    *,
    as_json: bool,
    expects_different_scores: bool = False,
    is_ahead: bool = False,
    to_percent: int | None = None,
) -> None:
    why = required_reason(reason, dry_run=False) or ""
    command = Command(kind, this_login(), why, expects_different_scores, is_ahead, to_percent)

    result = with_control_plane(lambda control_plane: control_plane.rollouts.command(model, command))
    mark = "✔" if result.changed else "nothing changed:"
    lines = [f"{mark} {result.event}"]
    if kind is CommandKind.ABORT and result.view.stale.count:
        lines.append(f"! {stale_proxies_words(result.view.stale)}")
    show(command_document(result), *lines, f"→ understudy rollout show {quote(model)}", as_json=as_json)
    if result.is_refused(command):
        raise typer.Exit(ExitCode.CONFLICT)


def _exit_code(phase: Phase, kind: Kind) -> ExitCode:
    if phase is Phase.FAILED:
        return ExitCode.DEGRADED
    if kind is Kind.GUARD:
        return ExitCode.UNDECIDED
    return ExitCode.DONE if phase in (Phase.SUCCEEDED, Phase.PROMOTING) else ExitCode.UNDECIDED
