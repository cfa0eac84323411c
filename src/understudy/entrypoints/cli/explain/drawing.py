"""Explanations as they are shown, drawn from the database: by the command line, and by a proxy in its place."""

import time
from collections.abc import Iterable
from shlex import quote
from typing import Any

from rich.text import Text

from understudy.bootstrap.session import Session
from understudy.core.routing.buckets import BUCKETS
from understudy.core.routing.policy import ServingPolicy
from understudy.core.routing.route import Assignment, assignment
from understudy.entrypoints.cli.shared.rendering import facts
from understudy.entrypoints.cli.shared.screens import Drawn
from understudy.entrypoints.cli.shared.texts.assignment_text import assignment_facts
from understudy.entrypoints.cli.shared.texts.guard_text import guard_words, newest_guard
from understudy.entrypoints.cli.shared.texts.waiting_text import waiting_words
from understudy.entrypoints.documents.json_text import moment_of
from understudy.ports.rollout.rollout_store import RolloutRecord, UnreadableRollout
from understudy.registry.findings.loading import missing_words


async def drawn_assignment(session: Session, model: str, entity: str, category: str | None) -> Drawn:
    """Return who answers an entity, and why.

    Raises:
        NotRegistered: There is no such model, or it has no policy.
        SchemaInvalid: No proxy can use its policy.
    """
    # gRPC and its messages: 0.2 s, which what changed is told without.
    from understudy.bootstrap.upstream.backends import policy_of_proxies  # noqa: PLC0415

    policy, record = await policy_of_proxies(session, model), (await session.registry.show_model(model)).policy
    mode = "off" if record is None else record.guard
    guard = guard_words(mode, await newest_guard(session.rollouts, model))
    found = assignment(policy, entity, category)
    lacks = [
        Text(f"{found.version} is {missing_words(one)}", "red")
        for one in await session.loading.list_missing(model)
        if one.version == found.version
    ]
    return Drawn({"assignment": found._asdict()}, [*_explanation(policy, found, guard), *lacks])


async def drawn_changes(session: Session, model: str) -> Drawn:
    """Return what changed around a model within an hour: where its champion fails, nothing beside it tells why.

    Raises:
        NotRegistered: There is no such model.
    """
    await session.registry.show_model(model)
    waits = _waits(await session.rollouts.listing(model, 1))
    changed = await session.changes.recent(model)
    head = Text("what changed within an hour around ").append(model, "bold")
    advice = Text(f"→ understudy explain {quote(model)} ENTITY says who answers an entity, and why", "dim")
    changes = [{**change._asdict(), "at": moment_of(change.at)} for change in changed.changes]
    document = {"changed_within_an_hour": {**changed.to_json(), "changes": changes}}
    now = [("rollout", waits)] if waits else []
    return Drawn(document | ({"waits": waits} if waits else {}), [head, facts([*now, *changed.lines]), advice])


def _waits(newest: Iterable[RolloutRecord | UnreadableRollout]) -> str:
    return "".join(
        one.problem if isinstance(one, UnreadableRollout) else waiting_words(one.state, time.time()) for one in newest
    )


def _explanation(policy: ServingPolicy, found: Assignment, guard: str) -> list[Any]:
    answer = Text().append(found.entity_id, "bold").append(f" → md5({policy.bucket_key}:{found.entity_id}) ")
    answer.append(f"mod {BUCKETS} = bucket {found.bucket} → ")
    answer.append(f"{found.role} {found.version}", "bold")
    return [answer, facts([*assignment_facts(policy, found), ("guard", guard)])]
