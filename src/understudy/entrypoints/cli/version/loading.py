"""``understudy version load`` and ``unload``: have agents load a version into model servers, and drop it."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from understudy.bootstrap.control_plane import ControlPlane
from understudy.core.durations import duration_words
from understudy.core.first_names import first_names
from understudy.core.loading.replicas import EVERY_SERVER, Replicas, parse_replicas
from understudy.core.loading.state import LoadingState
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.example_calls import unanswered
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, ModelName, VersionLabel
from understudy.entrypoints.cli.shared.rendering import Column, a_table, advise, nothing_as, show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.entrypoints.cli.shared.times import ago, seconds_of
from understudy.entrypoints.documents.loading import loading_document
from understudy.errors import NothingFits
from understudy.ports.loading.loading_registry import (
    ServerRecord,
    VersionAtServerRecord,
    VersionLoading,
    VersionLoadingRecord,
)
from understudy.registry.findings.loading import MAX_NAMED, server_trouble, server_trouble_line
from understudy.registry.policy_files import listed

DEFAULT_FOR: Final = "2h"
"""How long a version without a role stays loaded: long enough to check it, and to start a rollout."""
DEFAULT_TIMEOUT: Final = "5m"
LOOK_SECONDS: Final = 0.5
FIRST_REPORT_SECONDS: Final = 15.0
"""How long the first agent of a group is waited for, where others have servers: one reports within seconds."""
GroupName = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="The group of servers to load it onto, by their agents.")
]


RequiresValidation = Annotated[
    bool | None,
    typer.Option(
        "--require-validation/--no-require-validation",
        metavar="",
        rich_help_panel="Its validation",  # in one table with the others, 80 columns would cut the names
        help="A role needs it.",
    ),
]
NumberOfReplicas = Annotated[
    str | None, typer.Option(metavar="N", help="On so many servers of the group, 1..4 by its calls, or all.")
]


def load(
    *,
    model: ModelName,
    version: VersionLabel,
    group: GroupName = None,
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long, while it has no role.")
    ] = DEFAULT_FOR,
    keep: Annotated[bool, typer.Option("--keep", help="Until it is unloaded.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until its servers have it.")] = False,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="With --wait: give up then, 90s or 30m.")
    ] = DEFAULT_TIMEOUT,
    require_validation: RequiresValidation = None,
    replicas: NumberOfReplicas = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Have the servers of a group load a version; a load that failed begins again.

    A version with a role, or with a part in a rollout, is loaded for as long as it has that.
    """
    seconds, patience = None if keep else seconds_of(duration, "--for"), seconds_of(timeout, "--timeout")
    servers_asked = replicas_of(replicas)

    async def ask(control_plane: ControlPlane) -> tuple[VersionLoadingRecord, Sequence[ServerRecord], str]:
        loading, actor = control_plane.loading, actor_of_command(None)
        made = await loading.load(
            model,
            version,
            actor,
            group_name=group,
            seconds=seconds,
            requires_validation=require_validation,
            replicas=servers_asked,
            dry_run=dry_run,
        )
        require_replicas(servers_asked, made)
        if not wait or dry_run:
            return made, await loading.list_servers(), ""
        if not as_json:
            advise(*(line.plain for line in group_warnings(made.group_name, made.groups)))
        known = await _with_servers(loading, made, patience)
        made, servers = await _until_loaded(loading, known, patience, None if as_json else advise)
        problem = await unanswered(control_plane, model, version) if is_loaded(made, servers) else ""
        return made, servers, problem

    record, servers, problem = with_control_plane(ask)
    for_how_long = "until it is unloaded" if keep else f"for {duration}"
    head = _wanted_text(f"{model} {version}", record, for_how_long, dry_run=dry_run)
    then = f"→ understudy version show {quote(model)} {quote(version)} says where it is loaded"
    texts = [*group_warnings(record.group_name, record.groups), *servers_text(record, servers)]
    texts += _decision_texts(record, servers) if not dry_run or _are_too_few(record, servers) else []
    if problem:
        texts.append(Text("✖ ", "red").append(f"it answers no example call: {problem}"))
        then = f"→ understudy version check {quote(model)} {quote(version)} says more"
    document = {"loading": loading_document(record), "dry_run": dry_run, "example_call_problem": problem or None}
    show(document, head, *texts, then, as_json=as_json)
    if problem or (wait and not dry_run and not is_loaded(record, servers)):
        raise typer.Exit(ExitCode.PROBLEM)


def _wanted_text(whose: str, record: VersionLoadingRecord, for_how_long: str, *, dry_run: bool) -> Text:
    said = f"{whose} is wanted on {_servers_words(record)} {for_how_long}"
    return Text(f"{said}; nothing was written." if dry_run else f"{said}.", "bold")


def unload(*, model: ModelName, version: VersionLabel, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Have agents unload a version: first no proxy calls it, then its servers drop it. Refused while it has a role."""

    async def ask(control_plane: ControlPlane) -> tuple[VersionLoadingRecord, Sequence[ServerRecord]]:
        loading = control_plane.loading
        made = await loading.unload(model, version, actor_of_command(None), dry_run=dry_run)
        return made, await loading.list_servers()

    record, servers = with_control_plane(ask)
    said = f"{model} {version} is wanted no more on {_servers_words(record)}"
    head = Text(f"{said}; nothing was written." if dry_run else f"{said}.", "bold")
    then = f"→ understudy version load {quote(model)} {quote(version)} has it loaded again"
    show(
        {"loading": loading_document(record), "dry_run": dry_run},
        head,
        *servers_text(record, servers),
        then,
        as_json=as_json,
    )


def replicas_of(text: str | None) -> Replicas | None:
    """Return what --replicas says.

    Raises:
        CommandRefused: It is no number of servers.
    """
    try:
        return None if text is None else parse_replicas(text)
    except ValueError as problem:
        advice = "For example --replicas 2, --replicas 1..4 or --replicas all."
        raise CommandRefused(ExitCode.USAGE, f"--replicas: {problem}", advice) from None


def require_replicas(asked: Replicas | None, made: VersionLoadingRecord) -> None:
    """Refuse to go on where a proxy of the release before has taken no notice of --replicas.

    Raises:
        CommandRefused: It has not; the version is asked for on every server.
    """
    if asked is not None and made.replicas != (None if asked == EVERY_SERVER else asked):
        what = f"the proxy knows no --replicas: {made.model_name} {made.version} is wanted on {_servers_words(made)}"
        raise CommandRefused(ExitCode.PROBLEM, what, "Upgrade the proxies, or ask with DATABASE_URL.")


def _servers_words(record: VersionLoadingRecord) -> str:
    """Return in words on which servers a version is to be."""
    if record.replicas is None:
        return f"the servers of {record.group_name}"
    is_one = record.replicas.most == 1
    return f"{record.replicas} {'server' if is_one else 'servers'} of {record.group_name}"


def servers_text(record: VersionLoadingRecord, servers: Sequence[ServerRecord] = ()) -> Sequence[RenderableType]:
    """Return a table of the servers that have a version, or are to have it; and what failed.

    Args:
        record: What is recorded of the version, which stays as it was while its server is away.
        servers: The model servers; of those that do not answer it is said beside what is recorded.
    """
    troubles = {server.name: server for server in servers if server_trouble(server)}
    if not record.servers:
        return [Text(f"No server of {record.group_name} has been given it yet.", "dim"), *_validation_texts(record)]
    columns = [Column("server"), Column("wanted as", drop=1), Column("state"), Column("since", drop=2)]
    rows = [
        (
            server.server,
            nothing_as(server.why),
            _state_text(server, troubles.get(server.server)),
            ago(server.updated_at),
        )
        for server in record.servers
    ]
    failures = [_failure_text(server) for server in record.servers if server.error_code]
    away = [Text(server_trouble_line(troubles[one.server]), "red") for one in record.servers if one.server in troubles]
    return [a_table(columns, rows), *away, *failures, *_validation_texts(record)]


def too_few_texts(record: VersionLoadingRecord, servers: Sequence[ServerRecord]) -> list[Text]:
    """Return a line where fewer servers have been given a wanted version than are to have it."""
    is_wanted = any(one.why for one in record.servers)
    return [_problem_text(_too_few_words(record, servers))] if is_wanted and _too_few(record, servers) else []


def _decision_texts(record: VersionLoadingRecord, servers: Sequence[ServerRecord]) -> list[Text]:
    """Return what is known the moment after a wish: the leading monitor has not said yet which servers get it.

    A group that has too few servers needs no decision.
    """
    if not _too_few(record, servers):
        return []
    if _are_too_few(record, servers):
        return [_problem_text(_too_few_words(record, servers))]
    given = f"{len(_waited_for(record, servers))} of {_servers_words(record)} have been given it so far"
    return [Text(f"{given}; the monitor that leads chooses the others within seconds.", "dim")]


def _problem_text(words: str) -> Text:
    return Text("✖ ", "red").append(words)


def _too_few(record: VersionLoadingRecord, servers: Sequence[ServerRecord]) -> bool:
    """Whether fewer servers have been given a version than are to have it."""
    return record.replicas is not None and len(_waited_for(record, servers)) < record.replicas.least


def _are_too_few(record: VersionLoadingRecord, servers: Sequence[ServerRecord]) -> bool:
    """Whether the group has fewer servers that answer than are to have a version."""
    return record.replicas is not None and len(_answering(record, servers)) < record.replicas.least


def _too_few_words(record: VersionLoadingRecord, servers: Sequence[ServerRecord]) -> str:
    """Return why fewer servers have been given a version than are to have it, and what can be done about it."""
    there = len(_answering(record, servers))
    why, more = "no other one has room", "make room, start a further server"
    if _are_too_few(record, servers):
        why, more = f"the group has {there} that {'answers' if there == 1 else 'answer'}", "start a further one"
    given = f"{NothingFits.code} {len(_waited_for(record, servers))} of {_servers_words(record)} have been given it"
    return f"{given}: {why}; {more}, or ask for fewer by --replicas"


def _answering(record: VersionLoadingRecord, servers: Sequence[ServerRecord]) -> list[str]:
    """Return the servers of a version's group that answer their agents."""
    there = [one for one in servers if one.group_name == record.group_name and not one.is_draining]
    return [one.name for one in there if not server_trouble(one)]


def _state_text(recorded: VersionAtServerRecord, in_trouble: ServerRecord | None) -> str | Text:
    """Return a version's state at a server; a server that does not answer may have lost what is recorded of it."""
    if in_trouble is None or recorded.state is None:
        return nothing_as(recorded.state)
    return Text(f"was {recorded.state}: {server_trouble(in_trouble)}", "red")


def _validation_texts(record: VersionLoadingRecord) -> list[RenderableType]:
    """Return what became of its validations, a line for each server, and whether that is in a role's way."""
    asked = [one for one in record.validations if one.passed is not None]
    lines: list[RenderableType] = []
    for one in asked:
        mark, style = ("✔", "green") if one.problem is None else ("✖", "red" if one.passed is False else "yellow")
        said = one.problem or f"validated at {one.server}: {one.said}"
        lines.append(Text(f"{mark} ", style).append(said).append(f" ({ago(one.judged_at)})", "dim"))
    if record.unvalidated is not None:
        advice = f"understudy version validate {quote(record.model_name)} {quote(record.version)}"
        lines.append(f"It gets no role, and no larger share: {record.unvalidated}. → {advice}")
    elif record.requires_validation:
        lines.append(Text("It gets a role only with a validation that holds, and one does.", "dim"))
    return lines


def _failure_text(server: VersionAtServerRecord) -> Text:
    # What has no room is no attempt: nothing of it was tried.
    attempt = f" (attempt {server.attempt})" if server.attempt else ""
    return Text(f"{server.server}: {server.error_code} {server.error}{attempt}", "red")


def group_warnings(group: str, known: Sequence[str] | None) -> list[Text]:
    """Return that no agent has reported a server of a group, and the groups there are; nothing where one has.

    It may be misspelt, and it may get its first server later. ``known`` is ``None`` where that is not known.
    """
    if known is None or group in known:
        return []
    there = f"there are: {listed(known)}" if known else "no agent has reported any: understudy serve agent runs one"
    return [Text("! ", "yellow").append(f"no server of the group {group!r} is known; {there}")]


async def _with_servers(loading: VersionLoading, record: VersionLoadingRecord, seconds: float) -> VersionLoadingRecord:
    """Go on once a server of the group is known, or none of any group: then the first agent of all is on its way.

    An agent that was started a moment ago reports within seconds; a group that has none after that is most likely
    misspelt.

    Raises:
        CommandRefused: Naming the groups there are, and the command that moves the version to one.
    """
    give_up = time.monotonic() + min(seconds, FIRST_REPORT_SECONDS)
    while record.groups and record.group_name not in record.groups:
        if time.monotonic() >= give_up:
            raise _no_servers(record, record.groups)
        await asyncio.sleep(LOOK_SECONDS)
        record = await loading.show(record.model_name, record.version) or record
    return record


def _no_servers(record: VersionLoadingRecord, known: Sequence[str]) -> CommandRefused:
    named = f"{quote(record.model_name)} {quote(record.version)}"
    waited = duration_words(FIRST_REPORT_SECONDS)
    what = f"no agent of the group {record.group_name!r} has reported within {waited}; there are: {listed(known)}"
    advice = f"understudy version load {named} --group {quote(known[0])} --wait, or start an agent in the group."
    return CommandRefused(ExitCode.PROBLEM, what, advice)


async def _until_loaded(
    loading: VersionLoading, record: VersionLoadingRecord, seconds: float, tell: Callable[[str], None] | None
) -> tuple[VersionLoadingRecord, Sequence[ServerRecord]]:
    """Look again until every server has the version, or one will not try again; for so many seconds at most.

    Args:
        loading: Where it is asked.
        record: What is known by now.
        seconds: Longest wait.
        tell: Called with what it waits for, once for each cause: a person would see nothing for minutes. ``None``:
            a program reads the result alone.

    Raises:
        CommandRefused: That took longer; the message says what each server that does not have it lacks.
    """
    servers = await loading.list_servers()
    told: set[str] = set()
    try:
        async with asyncio.timeout(seconds):
            while not is_loaded(record, servers) and not has_given_up(record):
                for cause, line in obstacles(record, servers).items():
                    if tell is not None and cause not in told:
                        tell(line)
                        told.add(cause)
                await asyncio.sleep(LOOK_SECONDS)
                record = await loading.show(record.model_name, record.version) or record
                servers = await loading.list_servers()
    except TimeoutError:
        raise CommandRefused(
            ExitCode.PROBLEM,
            f"{record.model_name} {record.version} was not loaded within {duration_words(seconds)} on"
            f" {_servers_words(record)}{_lacking(record, servers)}",
            f"understudy version show {quote(record.model_name)} {quote(record.version)} says how far it is, understudy"
            " server list whether an agent is there; --timeout says how long to wait.",
        ) from None
    return record, servers


def obstacles(record: VersionLoadingRecord, servers: Sequence[ServerRecord]) -> Mapping[str, str]:
    """Return what keeps a version from being loaded for now, in words for each cause.

    A cause is a server with its error's code: the figures of a text change from one attempt to the next.
    """
    found = {"number": f"waiting: {_too_few_words(record, servers)}"} if _are_too_few(record, servers) else {}
    troubles = {server.name: server_trouble(server) for server in servers}
    for one in _waited_for(record, servers):
        if trouble := troubles.get(one.server):
            found[f"{one.server} away"] = f"waiting: {one.server}: {trouble}"
        elif one.error_code:
            found[f"{one.server} {one.error_code}"] = f"waiting: {one.server}: {one.error_code} {one.error}"
    return found


def _lacking(record: VersionLoadingRecord, servers: Sequence[ServerRecord]) -> str:
    """Return in words what each server is at that is to have a version and does not."""
    troubles = {server.name: server_trouble(server) for server in servers}
    words = []
    for one in _waited_for(record, servers):
        failed = f"{one.error_code} {one.error}" if one.error_code else ""
        at = (
            troubles.get(one.server)
            or failed
            or ("" if one.state == LoadingState.AVAILABLE else one.state or "waiting")
        )
        words += [f"{one.server}: {at}"] if at else []
    words += [f"{name}: no monitor has given it the version yet" for name in _not_given(record, servers)]
    words += [_too_few_words(record, servers)] if _too_few(record, servers) else []
    return f"; {first_names(words, MAX_NAMED, '; ')}" if words else ""


def is_loaded(record: VersionLoadingRecord, servers: Sequence[ServerRecord] = ()) -> bool:
    """Whether every server of the group that is to have a version has it, and at least one is.

    Of a version that is to be on some of them it is whether so many have it, at the least. What is recorded of a server
    that does not answer, or whose agent is silent, is of before. One that the leading monitor has not given the version
    yet counts as one that does not have it: the decision comes a moment after the wish.
    """
    troubled = {server.name for server in servers if server_trouble(server)}
    waited_for = _waited_for(record, servers)
    if record.replicas is not None:
        there = [one for one in waited_for if one.state == LoadingState.AVAILABLE and one.server not in troubled]
        return len(there) >= record.replicas.least
    have_it = all(one.state == LoadingState.AVAILABLE and one.server not in troubled for one in waited_for)
    return bool(waited_for) and have_it and not _not_given(record, servers)


def _not_given(record: VersionLoadingRecord, servers: Sequence[ServerRecord]) -> list[str]:
    """Return the servers that are to have a version as all of its group do, and have not been given it yet."""
    given = {one.server for one in _waited_for(record, servers)}
    return [name for name in _answering(record, servers) if name not in given] if record.replicas is None else []


def has_given_up(record: VersionLoadingRecord) -> bool:
    """Whether a server of the group that is to have a version will not try again by itself."""
    return any(server.state == LoadingState.ERROR and not server.will_retry for server in _waited_for(record))


def _waited_for(record: VersionLoadingRecord, servers: Sequence[ServerRecord] = ()) -> Sequence[VersionAtServerRecord]:
    """Return the servers that are to have a version, without those that it is moved away from, and those that end."""
    leaving = {server.name for server in servers if server.is_draining}
    there = [one for one in record.servers if one.why is not None and one.group_name == record.group_name]
    return [one for one in there if one.server not in leaving]
