"""A version that a person, or CI, has validated: its servers are asked, and what came of each is kept."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from understudy.bootstrap.session import Session
from understudy.core.loading.cases import CASE_FILES, CaseRows
from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.policy_document import version_from_row
from understudy.errors import BackendUnavailable, DeadlineExceeded, NotValidated
from understudy.loading.steps import StepResult, Steps
from understudy.ports.registry.registry import RETIRED, STAGING, Actor, VersionRecord
from understudy.registry.findings.finding import Finding, State

_ADVICE: Final = {
    "cases": "Register another version with the right model, or correct the cases.",
    "robustness": "Say in its schema what it does not take (bounds, enums), or mend the model.",
    "batches": "Mend the model, or say batch: false in its input_schema: proxies put callers' rows into one call.",
    "load": "Give it more time (timeout_ms), more replicas, or a smaller model; have calls share nothing in it.",
}
_SERVERS: Final = "servers"
"""The finding about servers that do not answer, which is no verdict about the version."""
_AWAY: Final = "understudy version check says which of its model servers answer."
AskServers = Callable[[ModelVersion, CaseRows | None, Steps], Awaitable[Sequence[StepResult]]]
"""Asks the endpoints of a version; raises ``NotValidated``, and where they do not answer as a ``ModelBackend``."""


class AskedOfVersion(NamedTuple):
    """What a version is asked."""

    rows: CaseRows | None
    steps: Steps


async def case_rows(place: Path) -> CaseRows:
    """Return the cases in a file, or in a folder with one.

    Raises:
        NotValidated: They cannot be read, or there are none.
    """
    from understudy.adapters.artifacts.case_file import read_case_rows  # noqa: PLC0415 - for cases alone

    rows = await read_case_rows(place)
    if rows is None:
        raise NotValidated(f"there are no cases in {place}: {', '.join(CASE_FILES)}")
    return rows


def serving_problem(record: VersionRecord, *, while_serving: bool) -> str | None:
    """Return why the servers of callers are not tried: a hard call may end one, and the load is one."""
    if while_serving or record.status in (STAGING, RETIRED):
        return None
    return f"version {record.version} of {record.model_name} is {record.status}: its callers would feel the load"


async def validated_version(
    session: Session, record: VersionRecord, asked: AskedOfVersion, ask: AskServers, actor: Actor
) -> Sequence[Finding]:
    """Ask each server of an agent and keep what became of it; without any, the version's servers together."""
    loading = await session.loading.show(record.model_name, record.version)
    servers = () if loading is None else loading.validations
    if not servers:
        return await _found(record, record.endpoints, asked, ask)
    findings: list[Finding] = []
    for server in servers:
        found = await _found(record, (server.target,), asked, ask)
        if found and server.digest is not None and not any(one.name == _SERVERS for one in found):
            passed = all(one.state is State.GOOD for one in found)
            said = "; ".join(one.what for one in found if passed or one.state is State.PROBLEM)
            await session.loading.judge(record.model_name, record.version, server, actor, passed=passed, said=said)
        findings += [one._replace(name=f"{one.name} at {server.server}") if len(servers) > 1 else one for one in found]
    return findings


async def _found(
    record: VersionRecord, endpoints: tuple[str, ...], asked: AskedOfVersion, ask: AskServers
) -> Sequence[Finding]:
    version = version_from_row(record.model_name, {**record._asdict(), "endpoints": endpoints})
    try:
        results = await ask(version, *asked)
    except NotValidated as problem:
        return [Finding("cases", State.PROBLEM, problem.detail, _ADVICE["cases"])]
    except (BackendUnavailable, DeadlineExceeded) as problem:
        return [Finding(_SERVERS, State.PROBLEM, problem.detail, _AWAY)]
    states = {True: State.GOOD, False: State.PROBLEM}
    return [Finding(one.step, states[one.passed], one.words, _ADVICE[one.step]) for one in results]
