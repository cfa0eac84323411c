"""``understudy version validate``: what an agent asks of a version before callers may, asked of its model servers."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from understudy.bootstrap.http_control_plane import registry_path
from understudy.bootstrap.session import Session
from understudy.core.loading.cases import CaseRows
from understudy.core.routing.policy import ModelVersion
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, ModelName, VersionLabel
from understudy.entrypoints.cli.shared.rendering import show
from understudy.entrypoints.cli.shared.session import with_session_or_proxy
from understudy.entrypoints.cli.shared.texts.findings_text import findings_table
from understudy.entrypoints.documents.loading import validation_document
from understudy.entrypoints.logs import keep_log_off_output
from understudy.errors import NotValidated
from understudy.loading.steps import StepResult, Steps
from understudy.registry.findings.finding import Finding, State
from understudy.settings import Settings

MAX_SECONDS = 300.0
Cases = Annotated[
    Path | None, typer.Option("--cases", metavar="FILE", help="Cases with their answers, or a folder with some.")
]
HardCalls = Annotated[bool, typer.Option("--robustness/--no-robustness", help="Calls at the ends of its schema.")]
LoadSeconds = Annotated[
    float, typer.Option("--load-seconds", min=0, max=MAX_SECONDS, help="How long calls go 4 at a time; 0: none.")
]
WhileServing = Annotated[bool, typer.Option("--while-serving", help="Of a version with a role, beside its callers.")]


def validate(
    *,
    model: ModelName,
    version: VersionLabel,
    cases: Cases = None,
    robustness: HardCalls = True,
    load_seconds: LoadSeconds = 10.0,
    while_serving: WhileServing = False,
    as_json: AsJson = False,
) -> None:
    """Ask a version cases, hard calls and load; leaves with 1 where one fails. No call is logged.

    Of a version that agents load each server is asked by itself, and what
    becomes of it is kept: a version that requires a validation gets a role
    once one holds at each of its servers. Over HTTP the proxy asks them, with
    load for 10 seconds at most.
    """
    keep_log_off_output()
    steps = Steps(hard_calls=robustness, load_seconds=load_seconds)
    asked = _Asked(model, version, _rows_of(cases), steps, while_serving)
    document = with_session_or_proxy(
        partial(_validated, asked),
        lambda control_plane: control_plane.look(
            f"{registry_path(model, 'versions', version)}:validate", {}, method="POST", body=asked.body()
        ),
    )
    mark, style, words = ("✔", "green", "is validated") if document["passed"] else ("✖", "red", "is not validated")
    head = Text(f"{mark} ", style).append(f"{model} {version} {words}", "bold")
    findings = [Finding(**{**one, "state": State(one["state"])}) for one in document["findings"]]
    show(document, head, findings_table(findings), as_json=as_json)
    raise typer.Exit(ExitCode.DONE if document["passed"] else ExitCode.PROBLEM)


class _Asked(NamedTuple):
    """What is asked, and of which version."""

    model_name: str
    version: str
    rows: CaseRows | None
    steps: Steps
    while_serving: bool

    def body(self) -> Mapping[str, Any]:
        """What a proxy is sent."""
        rows, steps = self.rows, self.steps
        cases = {} if rows is None else {"cases": [*map(dict, rows.rows)], "cases_are_text": rows.is_text}
        rest = {"robustness": steps.hard_calls, "load_seconds": steps.load_seconds, "while_serving": self.while_serving}
        return {**cases, **rest}


def _rows_of(place: Path | None) -> CaseRows | None:
    if place is None:
        return None
    from understudy.bootstrap.registering.validated_version import case_rows  # noqa: PLC0415 - for cases alone

    try:
        return asyncio.run(case_rows(place))
    except NotValidated as problem:
        raise CommandRefused(ExitCode.PROBLEM, problem.detail, "Name a file of cases, or a folder with one.") from None


async def _validated(asked: _Asked, session: Session) -> Mapping[str, Any]:
    from understudy.bootstrap.registering import validated_version as validating  # noqa: PLC0415 - numpy

    settings = settings_with_demo(lambda _: None)
    record = await session.registry.show_version(asked.model_name, asked.version)
    problem = validating.serving_problem(record, while_serving=asked.while_serving)
    if problem is not None:
        raise CommandRefused(ExitCode.USAGE, problem, "Add --while-serving to try its model servers all the same.")
    wanted = validating.AskedOfVersion(asked.rows, asked.steps)
    actor = actor_of_command(None)
    findings = await validating.validated_version(session, record, wanted, partial(_ask, settings), actor)
    if not findings:
        advice = f"Name cases: version validate {quote(record.model_name)} … --cases FILE."
        raise CommandRefused(ExitCode.USAGE, "nothing was asked", advice)
    return validation_document(asked.model_name, asked.version, findings)


async def _ask(settings: Settings, version: ModelVersion, rows: CaseRows | None, steps: Steps) -> Sequence[StepResult]:
    # gRPC and its messages: 0.2 s, which the other commands of this noun do without.
    from understudy.bootstrap.upstream.backends import validate_version  # noqa: PLC0415

    return await validate_version(settings, version, rows, steps)
