"""How rollouts look on a terminal."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from understudy.core.durations import duration_words
from understudy.core.rollout_state import Phase, RolloutState
from understudy.core.verdict import Verdict
from understudy.entrypoints.cli.rendering import Column, a_table, ago, facts
from understudy.entrypoints.cli.show_text import event_text, evidence_table
from understudy.ports import RolloutEventRecord, RolloutRecord, RolloutView
from understudy.rollout.picture import Picture
from understudy.rollout.replay import Replay
from understudy.rollout.starting import Prepared

_MOST_EVENTS = 12
_STYLES = {Phase.FAILED: "bold red", Phase.WAITING: "bold yellow", Phase.SUCCEEDED: "bold green"}
_VERDICTS = {
    Verdict.ADVANCE: ("✔", "green"),
    Verdict.ROLL_BACK: ("✖", "bold red"),
    Verdict.INVALID: ("✖", "bold yellow"),
    Verdict.HOLD: ("…", "dim"),
}


def prepared_text(prepared: Prepared, record: RolloutRecord | None = None) -> list[RenderableType]:
    """Return what a rollout would be, or, with ``record``, that it has begun."""
    model = prepared.champion.model_name
    title = f"{model}  {prepared.champion.version} → {prepared.challenger.version}   risk {prepared.risk}"
    columns = [
        Column("step", right=True),
        Column("at least"),
        Column("requests", right=True),
        Column("at today's traffic"),
    ]
    words = {step.weight_percent: step.words for step in prepared.forecast.steps}
    rows = [
        (
            f"{step.weight_percent} %",
            duration_words(step.dwell_seconds) if step.dwell_seconds else "-",
            f"{step.min_requests:,}" if step.min_requests else "-",
            words.get(step.weight_percent, "becomes champion"),
        )
        for step in prepared.plan.steps
    ]
    head = Text(title, "bold")
    begun: list[RenderableType] = [
        Text(f"Nothing was started. → understudy rollout start {model} {prepared.challenger.version}")
    ]
    if record is not None:
        begun = [
            Text("✔ ", "green").append(f"rollout {record.id} has begun: the warm-up comes first", "bold"),
            Text(f"→ understudy rollout watch {model}"),
        ]
    return [head, prepared.forecast.sentence, "", a_table(columns, rows), "", *begun]


def listing(found: Sequence[RolloutRecord]) -> RenderableType:
    """Return rollouts as a table."""
    if not found:
        return "No rollout was started yet. → understudy rollout start MODEL VERSION"
    columns = [
        Column("id", right=True),
        Column("model"),
        Column("versions"),
        Column("phase"),
        Column("share", right=True),
        Column("began", drop=1),
        Column("by", drop=2),
    ]
    rows = [
        (
            str(record.id),
            record.state.model_name,
            f"{record.state.champion} → {record.state.challenger}",
            Text(record.state.phase, _STYLES.get(record.state.phase, "")),
            f"{record.state.weight_percent} %",
            ago(_moment(record.state.started_at)),
            record.started_by,
        )
        for record in found
    ]
    return a_table(columns, rows)


def portrait(picture: Picture) -> list[RenderableType]:
    """Return a rollout: the verdict first, the evidence under it, what happened, the next command last."""
    view, state = picture.view, picture.view.record.state
    head = Text(f"{state.model_name}  {state.champion} → {state.challenger}   ", "bold")
    head.append(state.phase, _STYLES.get(state.phase, "bold cyan"))
    head.append(
        f"  rollout {view.record.id}, began {ago(_moment(state.started_at))} by {view.record.started_by}", "dim"
    )
    generation = "-" if view.policy is None else str(view.policy.generation)
    where = Text(f"generation {generation} on {view.proxies_on_generation} of {view.proxies} proxies", "dim")
    parts: list[RenderableType] = [
        head,
        where,
        Text(_sentence(picture)),
        "",
        _ladder(state, view.record.finished_at or view.read_at),
    ]
    if evidence := _evidence_of(picture):
        parts += ["", evidence_table(evidence)]
    parts += ["", *_story(picture.events, state), "", Text(_next_command(state))]
    return parts


def end_words(view: RolloutView) -> Text:
    """Return how a rollout stands, in one sentence."""
    state = view.record.state
    name = f"{state.model_name} {state.challenger}"
    if state.phase is Phase.FAILED:
        return Text("✖ ", "bold red").append(f"{name}: {state.reason}")
    if state.phase in (Phase.SUCCEEDED, Phase.PROMOTING):
        return Text("✔ ", "bold green").append(f"{name} is champion in the place of {state.champion}")
    return Text("… ", "yellow").append(
        f"{name} is undecided at {state.weight_percent} %: {state.reason or state.phase}"
    )


def replay_lines(replays: Sequence[tuple[RolloutEventRecord, Replay | None]]) -> list[RenderableType]:
    """Return what each stored verdict comes to when it is judged again."""
    found = [(event, replay) for event, replay in replays if replay is not None]
    if not found:
        return []
    lines: list[RenderableType] = [Text("\nverdicts, judged again from what they rested on", "bold")]
    for event, replay in found:
        mark, style = _VERDICTS[event.verdict or Verdict.HOLD]
        line = Text(f"  {mark} ", style).append(f"{event.verdict}  ")
        if replay.agrees:
            lines.append(line.append("the same verdict", "dim"))
        else:
            lines.append(line.append(f"now {replay.decision.verdict}: {replay.decision.reason}", "bold red"))
    return lines


def _sentence(picture: Picture) -> str:
    state = picture.view.record.state
    if state.reason:
        return state.reason
    if picture.decision is not None:
        decision = picture.decision
        is_named = decision.reason.startswith(decision.verdict.replace("_", " "))
        return decision.reason if is_named else f"{decision.verdict}: {decision.reason}"
    return picture.events[-1].reason if picture.events else "has not begun"


def _evidence_of(picture: Picture) -> Sequence[Mapping[str, Any]]:
    """Return the checks of this moment, or of the verdict that ended it."""
    if picture.decision is not None:
        return [row.to_json() for row in picture.decision.evidence]
    return next((event.evidence for event in reversed(picture.events) if event.evidence), ())


def _ladder(state: RolloutState, now: float) -> RenderableType:
    rows: list[tuple[str, str | Text]] = []
    at = len(state.step_starts) - 1
    for index, step in enumerate(state.plan.steps):
        name = f"{step.weight_percent:>3} %"
        if index < at or (index == at and state.phase is Phase.SUCCEEDED):
            until = state.step_starts[index + 1] if index < at else now
            rows.append((name, Text("✔ ", "green").append(duration_words(until - state.step_starts[index]))))
        elif index == at:
            style = _STYLES.get(state.phase, "bold yellow")
            rows.append((name, Text("● ", style).append(duration_words(max(0.0, now - state.step_starts[index])))))
        else:
            least = (
                f"{duration_words(step.dwell_seconds)}, {step.min_requests:,} requests" if step.dwell_seconds else ""
            )
            rows.append((name, Text("○ ", "dim").append(least, "dim")))
    return facts(rows)


def _story(events: Sequence[RolloutEventRecord], state: RolloutState) -> list[Text]:
    shown = events[-_MOST_EVENTS:]
    return [event_text(event, state.started_at, is_news=event is shown[-1]) for event in shown]


def _next_command(state: RolloutState) -> str:
    model = state.model_name
    if state.phase.is_final:
        return f"→ understudy audit list {model}"
    if state.phase is Phase.WAITING:
        return f"→ understudy rollout resume {model}, or: understudy rollout abort {model}"
    return f"→ to take it back: understudy rollback {model}"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
