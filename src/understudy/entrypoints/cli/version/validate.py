"""``understudy version validate``: what an agent asks of a version before callers may, asked of its model servers."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Final, NamedTuple

import typer
from rich.text import Text

from understudy.bootstrap.session import Session
from understudy.core.routing.policy_document import version_from_row
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, ModelName, VersionLabel
from understudy.entrypoints.cli.shared.rendering import show
from understudy.entrypoints.cli.shared.session import with_session
from understudy.entrypoints.cli.shared.texts.findings_text import findings_table
from understudy.entrypoints.logs import keep_log_off_output
from understudy.errors import BackendUnavailable, DeadlineExceeded, NotValidated
from understudy.lifecycle.server_findings import Finding, State
from understudy.loading.steps import Steps
from understudy.ports.loading.loading_registry import ValidationRecord, VersionLoadingRecord
from understudy.ports.registry.registry import RETIRED, STAGING, VersionRecord
from understudy.settings import Settings

MAX_SECONDS = 300.0
_ADVICE = {
    "cases": "Register another version with the right model, or correct the cases.",
    "robustness": "Say in its schema what it does not take (bounds, enums), or mend the model.",
    "load": "Give it more time (timeout_ms), more replicas, or a smaller model.",
}
_SERVERS: Final = "servers"
"""The finding about servers that do not answer, which is no verdict about the version."""
_AWAY = "understudy version check says which of its model servers answer."
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
    once one holds at each of its servers.
    """
    keep_log_off_output()
    settings = settings_with_demo()
    record, loading = with_session(lambda session: _read(session, model, version), settings)
    _refuse_serving(record, while_serving=while_serving)
    asked = _Validation(settings, record, cases, Steps(hard_calls=robustness, load_seconds=load_seconds))
    servers = () if loading is None else loading.validations
    findings = with_session(lambda session: asked.at_each(session, servers), settings)
    passed = all(finding.state is State.GOOD for finding in findings)
    mark, style, words = ("✔", "green", "is validated") if passed else ("✖", "red", "is not validated")
    head = Text(f"{mark} ", style).append(f"{model} {version} {words}", "bold")
    document = {
        "model": model,
        "version": version,
        "passed": passed,
        "findings": [finding._asdict() for finding in findings],
    }
    show(document, head, findings_table(findings), as_json=as_json)
    raise typer.Exit(ExitCode.DONE if passed else ExitCode.PROBLEM)


def _refuse_serving(record: VersionRecord, *, while_serving: bool) -> None:
    """Refuse to try the servers of callers: a hard call may end one, and the load is one.

    Raises:
        CommandRefused: The version has a role.
    """
    if record.status not in (STAGING, RETIRED) and not while_serving:
        what = f"version {record.version} of {record.model_name} is {record.status}: its callers would feel the load"
        raise CommandRefused(ExitCode.USAGE, what, "Add --while-serving to try its model servers all the same.")


async def _read(session: Session, model: str, version: str) -> tuple[VersionRecord, VersionLoadingRecord | None]:
    return await session.registry.show_version(model, version), await session.loading.show(model, version)


class _Validation(NamedTuple):
    """What is asked of a version."""

    settings: Settings
    record: VersionRecord
    cases: Path | None
    steps: Steps

    async def at_each(self, session: Session, servers: Sequence[ValidationRecord]) -> Sequence[Finding]:
        """Ask each server of an agent and keep what became of it; without any, the version's servers together."""
        if not servers:
            return await self._found(self.record.endpoints)
        findings: list[Finding] = []
        for server in servers:
            found = await self._found((server.target,))
            if server.digest is not None and not any(one.name == _SERVERS for one in found):
                passed = all(one.state is State.GOOD for one in found)
                said = "; ".join(one.what for one in found if passed or one.state is State.PROBLEM)
                named = (self.record.model_name, self.record.version)
                await session.loading.judge(*named, server, actor_of_command(None), passed=passed, said=said)
            findings += [
                one._replace(name=f"{one.name} at {server.server}") if len(servers) > 1 else one for one in found
            ]
        return findings

    async def _found(self, endpoints: tuple[str, ...]) -> Sequence[Finding]:
        # gRPC and its messages: 0.2 s, which the other commands of this noun do without.
        from understudy.bootstrap.backends import validate_version  # noqa: PLC0415

        record = self.record
        version = version_from_row(record.model_name, {**record._asdict(), "endpoints": endpoints})
        try:
            results = await validate_version(self.settings, version, self.cases, self.steps)
        except NotValidated as problem:
            return [Finding("cases", State.PROBLEM, problem.detail, _ADVICE["cases"])]
        except (BackendUnavailable, DeadlineExceeded) as problem:
            return [Finding(_SERVERS, State.PROBLEM, problem.detail, _AWAY)]
        if not results:
            what = "nothing was asked"
            raise CommandRefused(
                ExitCode.USAGE, what, f"Name cases: version validate {quote(record.model_name)} … --cases FILE."
            )
        states = {True: State.GOOD, False: State.PROBLEM}
        return [Finding(one.step, states[one.passed], one.words, _ADVICE[one.step]) for one in results]
