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
from understudy.core.routing.route import Assignment, Reason, assignment
from understudy.core.schema.typed_decoder import MAX_ENTITY_ID
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode, exit_code_for
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import facts, show
from understudy.entrypoints.cli.shared.session import with_session
from understudy.entrypoints.cli.shared.texts.guard_text import guard_words, newest_guard
from understudy.entrypoints.cli.shared.texts.waiting_text import waiting_words
from understudy.entrypoints.documents.json_text import moment_of
from understudy.errors import NotRegistered, SchemaInvalid, UnderstudyError, leaf_errors
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

    async def read(session: Session) -> tuple[ServingPolicy, str, Sequence[MissingVersion]]:
        policy, record = await read_policy(session, subject), (await session.registry.show_model(subject)).policy
        mode = "off" if record is None else record.guard
        guard = guard_words(mode, await newest_guard(session, subject))
        return policy, guard, await session.loading.list_missing(subject)

    policy, guard, missing = with_session(read)
    found = assignment(policy, entity, category)
    lacks = [Text(f"{found.version} is {missing_words(one)}", "red") for one in missing if one.version == found.version]
    show({"assignment": found._asdict()}, *_explanation(policy, found, guard), *lacks, as_json=as_json)


async def read_policy(session: Session, model_name: str) -> ServingPolicy:
    """Return the policy as a proxy reads it.

    Raises:
        NotRegistered: The model has none.
        SchemaInvalid: No proxy can use it.
        RegistryUnavailable: Postgres does not answer.
    """
    # gRPC and its messages: 0.2 s, which an explained code does without.
    from understudy.bootstrap.backends import policies_of_proxies  # noqa: PLC0415

    snapshot = await policies_of_proxies(session, [model_name])
    if model_name in snapshot.policies:
        return snapshot.policies[model_name]
    if model_name in snapshot.rejected:
        raise SchemaInvalid(snapshot.rejected[model_name])
    raise NotRegistered(f"{model_name} has no serving policy", hint="understudy model list shows those that have.")


def _explanation(policy: ServingPolicy, found: Assignment, guard: str) -> list[Any]:
    answer = Text().append(found.entity_id, "bold").append(f" → md5({policy.bucket_key}:{found.entity_id}) ")
    answer.append(f"mod {BUCKETS} = bucket {found.bucket} → ")
    answer.append(f"{found.role} {found.version}", "bold")
    return [answer, facts([*_reasons(policy, found), ("guard", guard)])]


def _reasons(policy: ServingPolicy, found: Assignment) -> list[tuple[str, str]]:
    reasons = [("why", _why(policy, found))]
    if policy.challenger is not None and found.joins_challenger_from_weight is not None:
        reasons.append(
            ("joins", f"{found.entity_id} joins the challenger from weight {found.joins_challenger_from_weight} on")
        )
    shadow = "none"
    if policy.shadow is not None:
        sees = "sees" if found.shadowed else "does not see"
        shadow = f"{policy.shadow.version} {sees} these calls (it is shown {policy.shadow_percent} % of the entities)"
    salt = (
        "none: the same entities come first for every challenger of this model" if policy.salt is None else policy.salt
    )
    return [*reasons, ("shadow", shadow), ("salt", salt), ("generation", str(policy.generation))]


def _why_of_category(policy: ServingPolicy, found: Assignment) -> str:
    if found.held_out:
        return f"its category routes to the challenger; it is one of the {policy.category_holdout_percent} % held out"
    return f"its category's role; by its bucket it would join the challenger from weight {found.bucket + 1} on"


def _why(policy: ServingPolicy, found: Assignment) -> str:
    challenger, weight, arm = policy.challenger, policy.challenger_weight, policy.arms.get(found.bucket)
    if arm is not None and found.reason == Reason.CATEGORY:
        return f"its category's role; by its bucket it would meet version {arm.version}"
    if arm is not None:
        return f"bucket {found.bucket} is one of the {policy.arm_percents[arm]} of version {arm.version}, a further arm"
    if found.reason == Reason.CATEGORY:
        return _why_of_category(policy, found)
    entities = "every entity that no further arm has" if policy.arms else "every entity"
    if challenger is None:
        return f"there is no challenger: the champion answers {entities}"
    if weight <= 0:
        return f"the challenger ({challenger.version}) has weight 0: the champion answers {entities}"
    return f"the challenger ({challenger.version}) takes buckets 0 to {weight - 1} at weight {weight}"


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
