"""The page of a model's policy: who answers and who watches, as a form whose fields say what is wrong with them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from understudy.core.routing.arms import arm_percents
from understudy.core.routing.proxy_liveness import live_proxies_words
from understudy.entrypoints.cli.shared.texts.guard_text import MEANINGS, ON_DRIFT
from understudy.errors import NotRegistered, PolicyRefused, UnderstudyError
from understudy.ports.registry.registry import RETIRED, PolicyRecord, VersionRecord
from understudy.registry.asked_change import NONE, AskedChange, arm_weights_of
from understudy.registry.policy_files import named_field

MAX_VERSIONS = 200
"""That a choice offers, the newest first."""
FIELDS = ("champion", "challenger", "challenger_weight", "arms", "shadow", "shadow_percent", "guard", "on_drift")
_ROLES, _OPTIONAL = ("champion", "challenger", "shadow"), ("challenger", "shadow")
_NUMBERS = ("challenger_weight", "shadow_percent")
_TYPED = (*_NUMBERS, "arms")
_MAX_DIGITS, _SHOWN = 9, 40
_LABELS = {
    "champion": "Champion",
    "challenger": "Challenger",
    "challenger_weight": "Challenger's share, percent",
    "arms": "Further arms",
    "shadow": "Shadow",
    "shadow_percent": "Shadow, percent of the entities",
    "guard": "Guard",
    "on_drift": "On drift",
}
_HINTS = {
    "champion": "answers every call that the others leave",
    "challenger_weight": "0 to 100",
    "arms": "VERSION=PERCENT, with commas between them; empty: none",
    "shadow": "is sent a copy of calls, and answers no caller",
    "guard": "; ".join(MEANINGS.values()),
    "on_drift": "; ".join(ON_DRIFT.values()),
}
_BEGINNING = dict.fromkeys(_OPTIONAL, NONE) | {
    "champion": "",
    "challenger_weight": "0",
    "arms": "",
    "shadow_percent": "100",
    "guard": "rollback",
    "on_drift": "alert",
}


class PolicySeen(NamedTuple):
    """What was read of a model's policy."""

    model: str
    policy: PolicyRecord | None
    versions: Sequence[VersionRecord]
    open_rollout: int | None


class Field(NamedTuple):
    """One field of a form."""

    name: str
    label: str
    value: str
    hint: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """Values with what they are called; empty: it is typed."""
    is_number: bool = False
    problem: str = ""
    """Why it was refused, and what to do."""


class PolicyPage(NamedTuple):
    """A model's policy."""

    model: str
    sentence: str
    warning: str
    generation: int
    fields: tuple[Field, ...]
    problem: str
    """Why the whole was refused, where that is no single field's."""


def policy_page(
    seen: PolicySeen, asked: Mapping[str, str] | None = None, refused: UnderstudyError | None = None
) -> PolicyPage:
    """Return the page, with the values that were asked for and refused, or those that hold."""
    policy, values = seen.policy, standing_values(seen.policy)
    if asked is not None:
        values |= {name: asked[name] for name in FIELDS if name in asked}
    at = _field_of(refused, values) if refused is not None else ""
    said = "" if refused is None else refusal_words(refused)
    fields = tuple(_field(name, values[name], seen, said if name == at else "") for name in FIELDS)
    warning = ""
    if seen.open_rollout is not None:
        warning = f"Rollout {seen.open_rollout} is open: it alone moves this split, unless a person has paused it."
    generation = 0 if policy is None else policy.generation
    return PolicyPage(seen.model, _sentence(seen), warning, generation, fields, "" if at else said)


def standing_values(policy: PolicyRecord | None) -> dict[str, str]:
    """Return a policy's fields as the form has them."""
    if policy is None:
        return dict(_BEGINNING)
    held = policy._asdict()
    texts = {name: NONE if held[name] is None else str(held[name]) for name in FIELDS if name != "arms"}
    return texts | {"arms": ", ".join(f"{arm}={percent}" for arm, percent in arm_percents(policy.arms).items())}


def asked_change(policy: PolicyRecord | None, model: str, asked: Mapping[str, str], generation: int) -> AskedChange:
    """Return the change that a form asks for: of the fields that it names with another value than they have.

    Raises:
        PolicyRefused: The arms are not what a share is written as, or a percentage is no whole number.
    """
    standing = standing_values(policy)
    typed_in = {name: asked[name].strip() if name in _TYPED else asked[name] for name in FIELDS if name in asked}
    changed = {name: text for name, text in typed_in.items() if text != standing[name]}
    weights = None
    if "arms" in changed:
        texts = [text.strip() for text in changed.pop("arms").split(",") if text.strip()]
        typed = arm_weights_of(texts or [NONE])
        ended = dict.fromkeys(arm_percents(policy.arms) if policy is not None else (), 0)
        weights = {**ended, **typed} if typed else {}
    changes = {name: _value(name, text) for name, text in changed.items()}
    return AskedChange(model, changes, weights, generation)


def refusal_words(refused: UnderstudyError) -> str:
    """Return why something was refused, in the words of every other way to ask for it, and what to do."""
    detail = refused.detail_without_others if isinstance(refused, NotRegistered) else refused.detail
    if refused.next_step == type(refused).hint:
        return _sentence_of(detail)
    return f"{_sentence_of(detail)} {refused.next_step}"


def version_options(versions: Sequence[VersionRecord], *held: str | None) -> tuple[tuple[str, str], ...]:
    """Return the versions that may be chosen, the newest first: none that is retired, unless it is held."""
    newest = [one for one in reversed(versions) if one.status != RETIRED or one.version in held][:MAX_VERSIONS]
    found = {one.version: f"{one.version} ({one.status})" for one in newest}
    return tuple((found | {label: label for label in held if label and label not in found}).items())


def _sentence_of(detail: str) -> str:
    return detail if detail.endswith((".", "!", "?")) else f"{detail}."


def _value(name: str, text: str) -> Any:
    if name in _OPTIONAL and text == NONE:
        return None
    if name not in _NUMBERS:
        return text
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        hint = "Leave the field as it was, or type a number such as 10."
        raise PolicyRefused(f"{name} is a whole percentage from 0 to 100, not {text[:_SHOWN]!r}", hint=hint)
    return int(text)


def _field_of(refused: UnderstudyError, values: Mapping[str, str]) -> str:
    """Return the field that a refusal is about; empty where it is about none, or more."""
    if isinstance(refused, NotRegistered):
        return next((name for name in _ROLES if f"{values[name]!r}" in refused.detail), "")
    if refused.detail.startswith(("further arms", "arms")):  # which name the champion, too
        return "arms"
    found = named_field(refused.detail, FIELDS)
    return found if found in FIELDS else ""


def _field(name: str, value: str, seen: PolicySeen, problem: str) -> Field:
    options: tuple[tuple[str, str], ...] = ()
    if name in _ROLES:
        first = ((NONE, "none"),) if name in _OPTIONAL else () if seen.policy is not None else (("", "choose one"),)
        options = first + version_options(seen.versions, value if value != NONE else None)
    elif name == "guard":
        options = tuple((word, word) for word in MEANINGS)
    elif name == "on_drift":
        options = tuple((word, word) for word in ON_DRIFT)
    return Field(name, _LABELS[name], value, _HINTS.get(name, ""), options, name in _NUMBERS, problem)


def _sentence(seen: PolicySeen) -> str:
    policy = seen.policy
    if policy is None:
        return f"{seen.model} is not served: it has no policy. Its first one needs a champion."
    shares = arm_percents(policy.split.ranges)
    first = {policy.champion: shares.get(policy.champion, 0)} | shares
    split = ", ".join(f"{version} answers {percent} %" for version, percent in first.items())
    reach = live_proxies_words(policy.proxies, policy.proxies_on_generation)
    return f"{split}. Generation {policy.generation} by {policy.updated_by}; {reach}."
