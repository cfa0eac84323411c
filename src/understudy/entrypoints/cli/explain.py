"""``understudy explain``: why an entity gets its answer, what changed around a model, or what an error code means."""

import re
import time
from collections.abc import Sequence
from shlex import quote
from typing import Annotated, Any

import typer
from rich.text import Text

from understudy.bootstrap.session import Session
from understudy.core.alerts.recent_changes import RecentChanges
from understudy.core.routing.buckets import BUCKETS
from understudy.core.routing.policy import ServingPolicy
from understudy.core.routing.route import Assignment, assignment
from understudy.core.schema.typed_decoder import MAX_ENTITY_ID
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode, exit_code_for
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import facts, show
from understudy.entrypoints.cli.shared.session import with_session
from understudy.entrypoints.cli.shared.texts.assignment_text import assignment_facts
from understudy.entrypoints.cli.shared.texts.guard_text import guard_words, newest_guard
from understudy.entrypoints.cli.shared.texts.waiting_text import waiting_words
from understudy.entrypoints.documents.json_text import moment_of
from understudy.errors import UnderstudyError, leaf_errors
from understudy.lifecycle.loading_findings import missing_words
from understudy.ports.loading.loading_registry import MissingVersion
from understudy.ports.rollout.rollout_store import UnreadableRollout

_CODE = r"[Ee]\d{3}"
app = typer.Typer(add_completion=False)


@app.command()
def explain(
    *,
    subject: Annotated[str, typer.Argument(metavar="MODEL|CODE", help="A model's name, or an error code: E203.")],
    entity: Annotated[str | None, typer.Argument(metavar="ENTITY", help="The entity id of the calls.")] = None,
    category: Annotated[str | None, typer.Option(help="As the call's own category.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say who answers an entity and why (MODEL ENTITY), what changed of late (MODEL), or what an error means (CODE)."""
    if entity is None and re.fullmatch(_CODE, subject):
        _explain_code(subject, as_json=as_json)
        return
    if entity is None:
        _explain_changes(subject, as_json=as_json)
        return
    if not 0 < len(entity) <= MAX_ENTITY_ID:
        raise CommandRefused(ExitCode.USAGE, "no usable entity id", f"It has 1 to {MAX_ENTITY_ID} characters.")

    # gRPC and its messages: 0.2 s, which an explained code does without.
    from understudy.bootstrap.backends import policy_of_proxies  # noqa: PLC0415

    async def read(session: Session) -> tuple[ServingPolicy, str, Sequence[MissingVersion]]:
        policy, record = await policy_of_proxies(session, subject), (await session.registry.show_model(subject)).policy
        mode = "off" if record is None else record.guard
        guard = guard_words(mode, await newest_guard(session.rollouts, subject))
        return policy, guard, await session.loading.list_missing(subject)

    policy, guard, missing = with_session(read)
    found = assignment(policy, entity, category)
    lacks = [Text(f"{found.version} is {missing_words(one)}", "red") for one in missing if one.version == found.version]
    show({"assignment": found._asdict()}, *_explanation(policy, found, guard), *lacks, as_json=as_json)


def _explanation(policy: ServingPolicy, found: Assignment, guard: str) -> list[Any]:
    answer = Text().append(found.entity_id, "bold").append(f" → md5({policy.bucket_key}:{found.entity_id}) ")
    answer.append(f"mod {BUCKETS} = bucket {found.bucket} → ")
    answer.append(f"{found.role} {found.version}", "bold")
    return [answer, facts([*assignment_facts(policy, found), ("guard", guard)])]


def _explain_changes(model: str, *, as_json: bool) -> None:
    """Say what changed around a model within an hour: where its champion fails, nothing beside it tells why."""

    async def read(session: Session) -> tuple[RecentChanges, str]:
        await session.registry.show_model(model)
        newest = await session.rollouts.listing(model, 1)
        waits = [
            one.problem if isinstance(one, UnreadableRollout) else waiting_words(one.state, time.time())
            for one in newest
        ]
        return await session.changes.recent(model), "".join(waits)

    changed, waits = with_session(read)
    head = Text("what changed within an hour around ").append(model, "bold")
    advice = Text(f"→ understudy explain {quote(model)} ENTITY says who answers an entity, and why", "dim")
    changes = [{**change._asdict(), "at": moment_of(change.at)} for change in changed.changes]
    document = {"changed_within_an_hour": {**changed.to_json(), "changes": changes}}
    now = [("rollout", waits)] if waits else []
    show(document | ({"waits": waits} if waits else {}), head, facts([*now, *changed.lines]), advice, as_json=as_json)


def _explain_code(code: str, *, as_json: bool) -> None:
    known = {error.code: error for error in leaf_errors()}
    error: type[UnderstudyError] | None = known.get(code.upper())
    if error is None:
        raise CommandRefused(
            ExitCode.NOT_FOUND, f"no error has the code {code}", f"They are {', '.join(sorted(known))}."
        )
    exit_code = int(exit_code_for(error))
    document = {"code": error.code, "title": error.title, "next": error.hint, "exit_code": exit_code}
    text = (
        Text().append(f"{error.code} ", "bold").append(error.title, "bold").append("\n  → ", "cyan").append(error.hint)
    )
    show({"error": document}, text, facts([("exit code", str(exit_code))]), as_json=as_json)
