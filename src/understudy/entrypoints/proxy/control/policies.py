"""Calls about policies: show one, change one, list who changed what.

Each also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.
"""

from understudy.bootstrap.session import Session
from understudy.entrypoints.documents.policies import audit_document, policy_document
from understudy.entrypoints.proxy.control.bodies import PolicyChange, read_whole_number
from understudy.entrypoints.proxy.control.handler import (
    READ_SECONDS,
    WRITE_SECONDS,
    Bulkhead,
    ControlCall,
    answer,
    version_labels,
)
from understudy.entrypoints.proxy.control.pages import NEXT, audit_cursor
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.errors import GenerationMoved, GenerationNotNamed, HeaderInvalid, NotRegistered
from understudy.ports.registry.registry import AuditFilter, AuditSubject, PolicyRecord
from understudy.registry.changes import set_policy


async def show_policy(call: ControlCall) -> Reply:
    """Return a model's policy, with its generation as ``ETag``.

    Raises:
        NotRegistered: There is no such model, or it has no policy.
    """

    async def read(parts: Session) -> Reply:
        policy = (await parts.registry.show_model(call.model_name)).policy
        if policy is None:
            raise NotRegistered("the model has no serving policy", hint='PATCH one with a champion and If-Match: "0".')
        return answer({"policy": policy_document(policy)}, 200, _etag(policy))

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def change_policy(call: ControlCall, body: bytes, *, generation: int, dry_run: bool) -> Reply:
    """Change fields of a policy that is at this generation; 0 makes a model's first one.

    Raises:
        MalformedBody, BodyInvalid: The body.
        NotRegistered: There is no such model or version.
        GenerationMoved: The policy is at another generation.
        PolicyRefused: The database refuses the change.
    """
    asked = PolicyChange.read(body)

    async def change(parts: Session) -> Reply:
        await parts.registry.show_model(call.model_name)
        try:
            changed = await set_policy(
                parts.registry,
                call.model_name,
                asked.changes,
                call.actor(asked.reason),
                expected_generation=generation,
                file=asked.words,
                dry_run=dry_run,
            )
        except GenerationMoved as problem:
            raise await _explained(parts, call.model_name, problem) from problem
        is_changed = changed.is_changed and not dry_run
        document = {
            "policy": policy_document(changed.after),
            "before": None if changed.before is None else policy_document(changed.before),
            "changed": is_changed,
            "dry_run": dry_run,
        }
        return answer(document, 200, *([] if dry_run else [_etag(changed.after)]))

    return await call.run(Bulkhead.WRITE, change, WRITE_SECONDS)


async def list_audit(call: ControlCall, limit: int, subject: AuditSubject | None, only: AuditFilter) -> Reply:
    """Return a page of the changes of a model, or of all where the call names no model, latest first."""
    model_name = call.model_name or None

    async def read(parts: Session) -> Reply:
        labels = await version_labels(parts, model_name)
        found = await parts.registry.list_audit(model_name, limit + 1, subject, only=only)
        shown = found[:limit]
        cursor = audit_cursor(shown, only.after) if len(found) > limit else None
        return answer({**audit_document(shown, labels), NEXT: cursor})

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def _explained(parts: Session, model_name: str, problem: GenerationMoved) -> GenerationMoved:
    """Return the problem with the change that came first: its generation, its time and its actor."""
    policy = (await parts.registry.show_model(model_name)).policy
    if policy is None:
        return problem
    return GenerationMoved(
        f"the policy is at generation {policy.generation} since {policy.updated_at:%Y-%m-%dT%H:%M:%SZ}, "
        f"by {policy.updated_by}",
        hint="GET the policy again, look at it, and repeat the change with its ETag.",
    )


def _etag(policy: PolicyRecord) -> tuple[bytes, bytes]:
    return b"etag", b'"%d"' % policy.generation


def read_generation(if_match: str | None) -> int:
    """Return the generation of a policy that ``If-Match`` names.

    Raises:
        GenerationNotNamed: There is no such header.
        HeaderInvalid: It names anything but one generation.
    """
    if if_match is None:
        raise GenerationNotNamed
    digits = if_match.strip().removeprefix('"').removesuffix('"')
    if f'"{digits}"' != if_match.strip() or read_whole_number(digits) is None:
        raise HeaderInvalid('if-match: expected one ETag of a policy, such as "41"; "0" while there is no policy')
    return int(digits)
