"""What a client understood: the answers of all three ways in the words of the checker."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rigs.histories.record import Ended, Kind


class Answer(NamedTuple):
    """How an operation ended, and what was said."""

    ended: Ended
    said: Mapping[str, Any] = {}


UNKNOWN = Answer(Ended.UNKNOWN)
_REASONS = {"E203": "refused", "E206": "not registered", "E207": "not ready", "E409": "moved"}


def refused(code: str, detail: str) -> Answer:
    """Return a refusal by the product's error code."""
    return Answer(Ended.REFUSED, {"why": _REASONS.get(code, code), "detail": detail})


def is_refusal(code: str | None) -> bool:
    """Whether an error says that nothing was carried out."""
    return code in _REASONS


def unexpected(text: str) -> Answer:
    """Return what no page of the reference promises: a finding by itself."""
    return Answer(Ended.UNKNOWN, {"unexpected": text[:500]})


def policy_said(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy as HTTP and the command line show it, in the model's names."""
    return {
        "champion": document["champion"],
        "challenger": document["challenger"],
        "weight": document["challenger_weight"],
        "shadow": document["shadow"],
        "shadow_percent": document["shadow_percent"],
        "fallback": document["fallback"],
        "salt": document["salt"],
        "arms": [[arm["version"], arm["first"], arm["last"]] for arm in document["arms"]],
        "rollout_id": document["rollout_id"],
        "previous_champion": document["previous_champion"],
        "generation": document["generation"],
    }


def read_policy(document: Mapping[str, Any]) -> Answer:
    """Return what a read of the policy said."""
    return Answer(Ended.DONE, {"generation": document["generation"], "policy": policy_said(document)})


def changed_policy(document: Mapping[str, Any]) -> Answer:
    """Return what a change of the policy said."""
    return Answer(Ended.DONE, {"generation": document["policy"]["generation"], "changed": bool(document["changed"])})


def read_audit(entries: Sequence[Mapping[str, Any]]) -> Answer:
    """Return a page of the audit, without the rows of versions, endpoints and keys."""
    own = [[one["generation"], one["reason"] or "", one["actor"]] for one in entries if one["generation"] is not None]
    return Answer(Ended.DONE, {"entries": own, **({"generation": own[0][0]} if own else {})})


def rolled_back(document: Mapping[str, Any]) -> Answer:
    """Return what a rollback said."""
    did, generation = document["did"], document["generation"]
    return Answer(Ended.DONE, {"did": did, "generation": generation, "changed": not did.startswith("nothing")})


def read_rollout(documents: Sequence[Mapping[str, Any]]) -> Answer:
    """Return the newest rollout of a listing."""
    if not documents:
        return Answer(Ended.DONE, {"rollout": None})
    (newest, *_) = documents
    step = max(len(newest["step_starts"]) - 1, 0)
    said = {"rollout": newest["rollout_id"], "revision": newest["revision"], "phase": newest["phase"], "step": step}
    return Answer(Ended.DONE, said)


def understood(kind: Kind, document: Mapping[str, Any]) -> Answer:
    """Return what a document says that HTTP or the command line answered with."""
    return _DOCUMENTS.get(kind, _commanded)(document)


def _read_shown(document: Mapping[str, Any]) -> Answer:
    return read_policy(document["model"]["policy"] if "model" in document else document["policy"])


def _commanded(document: Mapping[str, Any]) -> Answer:
    rollout = document["rollout"]["rollout_id"]
    return Answer(Ended.DONE, {"rollout": rollout, "changed": document["changed"], "event": document["event"]})


def _started(document: Mapping[str, Any]) -> Answer:
    return Answer(Ended.DONE, {"rollout": document["rollout"]["rollout_id"], "changed": True})


def _with_status(document: Mapping[str, Any]) -> Answer:
    return Answer(Ended.DONE, {"changed": document["changed"]})


_DOCUMENTS: Mapping[Kind, Callable[[Mapping[str, Any]], Answer]] = {
    Kind.READ_POLICY: _read_shown,
    Kind.READ_AUDIT: lambda document: read_audit(document["audit"]),
    Kind.READ_ROLLOUT: lambda document: read_rollout(document["rollouts"]),
    Kind.SET: changed_policy,
    Kind.ROLL_BACK: lambda document: rolled_back(document["rollback"]),
    Kind.START: _started,
    Kind.RETIRE: _with_status,
    Kind.RESTORE: _with_status,
}
"""What is no command to a rollout."""
