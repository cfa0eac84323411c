"""The plan of a rollout: the option that names it, and what it comes to at today's traffic."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, NamedTuple

import orjson
import typer
from rich.console import RenderableType
from rich.text import Text

from understudy.core.durations import duration_words
from understudy.core.rollout.forecast import StepForecast
from understudy.core.rollout.gates import gate_words
from understudy.core.upstream.same_call import same_calls
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.policy_changes.input_warnings import input_warnings
from understudy.entrypoints.cli.shared.policy_changes.same_call_warnings import same_call_warnings
from understudy.entrypoints.cli.shared.rendering import Column, a_table
from understudy.ports.rollout.rollout_store import RolloutRecord
from understudy.rollout.start.start import Prepared

VersionName = Annotated[str, typer.Argument(metavar="VERSION", help="The challenger.")]
PlanSource = Annotated[
    str | None,
    typer.Option("--plan", metavar="PLAN", help="default, fast, rolling, blue_green, 2,10,50,100 or @file.json."),
]
Freezes = Annotated[
    list[str] | None,
    typer.Option(
        "--freeze", metavar="WINDOW", help="No step then: 'Fri 18:00 - Mon 08:00 Europe/Berlin'. May be repeated."
    ),
]

ExpectDifferentScores = Annotated[
    bool, typer.Option("--expect-different-scores", help="Scores unlike the champion's do not hold it at the warm-up.")
]


def plan_source_of(plan: str | None) -> str | dict[str, Any] | None:
    """Return what ``--plan`` says: a name or weights as they are, a file's JSON object.

    Raises:
        CommandRefused: The file cannot be read, or holds no object.
    """
    if plan is None or not plan.startswith("@"):
        return plan
    try:
        document = orjson.loads(Path(plan[1:]).read_bytes())
    except (OSError, orjson.JSONDecodeError) as problem:
        raise CommandRefused(
            ExitCode.USAGE, f"--plan: {problem}", "Name a file with a JSON object: --plan @plan.json"
        ) from None
    if not isinstance(document, dict):
        raise CommandRefused(ExitCode.USAGE, f"--plan: {plan[1:]} holds no JSON object", "See docs/reference/cli.md.")
    return document


PLAN_COLUMNS = ("step", "at least", "requests", "finds, at least", "at today's traffic")
REFUSED_WORDS = "A rollout of it is refused. → docs/how-to/connect-a-model-server.md says what to do"


class PlanWords(NamedTuple):
    """What is said of a rollout that is prepared."""

    title: str
    because: str
    warnings: tuple[str, ...]
    expected: tuple[str, ...]
    """How long it takes, when it takes no step, and whom it asks before one."""
    rows: tuple[tuple[str, ...], ...]
    """Of the steps, by :data:`PLAN_COLUMNS`."""


def plan_words(prepared: Prepared) -> PlanWords:
    """Return a rollout's plan at today's traffic, in words."""
    model = prepared.champion.model_name
    steps = {step.weight_percent: step for step in prepared.forecast.steps}
    rows = tuple(
        (
            f"{step.weight_percent} %",
            duration_words(step.dwell_seconds) if step.dwell_seconds else "-",
            f"{step.min_requests:,}" if step.min_requests else "-",
            _effect_words(steps.get(step.weight_percent)),
            steps[step.weight_percent].words if step.weight_percent in steps else "becomes champion",
        )
        for step in prepared.plan.steps
    )
    inputs = input_warnings(prepared.champion.version, prepared.challenger.version, prepared.inputs)
    same = same_call_warnings(same_calls(prepared.challenger, [prepared.champion]))
    told = [line for words in prepared.warnings for line in f"! {words}".splitlines()]
    warnings = (*(line.plain for line in (*inputs, *same)), *told)
    # A warning says why it would never end.
    is_said = inputs or prepared.forecast.warnings or prepared.deadline_warnings
    expected = [prepared.forecast.sentence] if prepared.forecast.seconds is not None or not is_said else []
    frozen = [f"No step is taken: {window.words()}." for window in prepared.plan.freezes]
    gates = [f"{gate_words(place, who)}." for place, who in prepared.plan.gates.items()]
    return PlanWords(
        f"{model}  {prepared.champion.version} → {prepared.challenger.version}",
        f"The risk is {prepared.grade.risk}: {prepared.grade.reason}.",
        warnings,
        (*expected, *frozen, *gates),
        rows,
    )


def start_command(prepared: Prepared, asked_plan: str | None, freezes: Sequence[str], *, expects_scores: bool) -> str:
    """Return the command that starts a rollout as it is prepared."""
    start = ["understudy", "rollout", "start", prepared.champion.model_name, prepared.challenger.version]
    if asked_plan is not None:
        start += ["--plan", asked_plan]
    for window in freezes:
        start += ["--freeze", window]
    if expects_scores:
        start += ["--expect-different-scores"]
    return shlex.join(start)


def first_share_words(prepared: Prepared) -> str:
    """Return what a person is asked to confirm of a start."""
    first = prepared.plan.steps[0].weight_percent
    return f"This sends {first} % of {prepared.champion.model_name} to version {prepared.challenger.version} first"


def prepared_rollout_texts(
    prepared: Prepared,
    record: RolloutRecord | None = None,
    *,
    asked_plan: str | None = None,
    freezes: Sequence[str] = (),
    expects_scores: bool = False,
) -> list[RenderableType]:
    """Return a rollout's plan at today's traffic and what starts it, or, with ``record``, that it has begun."""
    said = plan_words(prepared)
    step, at_least, requests, *others = PLAN_COLUMNS
    columns = [Column(step, right=True), Column(at_least), Column(requests, right=True), *map(Column, others)]
    start = start_command(prepared, asked_plan, freezes, expects_scores=expects_scores)
    begun: list[RenderableType] = [Text(f"Nothing was started. → {start}")]
    if record is not None:
        begun = [
            Text("✔ ", "green").append(f"rollout {record.id} has begun: the warm-up comes first", "bold"),
            Text(f"→ understudy rollout watch {quote(prepared.champion.model_name)}"),
        ]
    elif prepared.inputs.breaking:
        begun = [Text(REFUSED_WORDS)]
    warnings = [_warning_text(line) for line in said.warnings]
    return [
        Text(said.title, "bold"), said.because, *warnings, *said.expected, "", a_table(columns, said.rows), "", *begun
    ]  # fmt: skip


def _warning_text(line: str) -> Text:
    is_first = line.startswith("! ")
    return Text("! ", "yellow").append(line.removeprefix("! ")) if is_first else Text(line)


def _effect_words(step: StepForecast | None) -> str:
    """Return the minimum detectable effect at a step's end: the errors, and the latency, in multiples."""
    if step is None or step.error_ratio is None:
        return "-"
    latency = "" if step.latency_ratio is None else f", {step.latency_ratio:.2g}x the time"
    return f"{step.error_ratio:.2g}x the errors{latency}"
