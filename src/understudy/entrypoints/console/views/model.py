"""The page of a model that has no rollout: who answers its calls, and who changed that."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from understudy.core.routing.arms import arm_percents
from understudy.core.routing.proxy_liveness import live_proxies_words
from understudy.entrypoints.cli.shared.texts.guard_text import MEANINGS
from understudy.entrypoints.console.views.changes import ChangeRow, change_row
from understudy.entrypoints.console.views.links import ROLL_BACK, act_path
from understudy.ports.registry.registry import AuditEntry, ModelRecord


class ModelSeen(NamedTuple):
    """What was read of a model."""

    record: ModelRecord
    audit: Sequence[AuditEntry]
    labels: Mapping[int, str]


class ModelPage(NamedTuple):
    """A model."""

    model: str
    sentence: str
    facts: tuple[tuple[str, str], ...]
    changes: tuple[ChangeRow, ...]
    commands: tuple[str, ...]
    rollback_href: str
    """Empty where there is no policy that could be taken back."""


def model_page(seen: ModelSeen) -> ModelPage:
    """Return the page."""
    record, policy = seen.record, seen.record.policy
    changes = tuple(change_row(entry, seen.labels) for entry in seen.audit)
    name = quote(record.model_name)
    if policy is None:
        sentence = f"{record.model_name} is not served: it has no policy."
        commands = (f"understudy model set {name} --champion VERSION --reason '…'",)
        return ModelPage(record.model_name, sentence, (), changes, commands, "")
    shares = arm_percents(policy.split.ranges)
    others = [f"{version} {percent} %" for version, percent in shares.items() if version != policy.champion and percent]
    sentence = f"{policy.champion} answers every call." if not others else f"Calls are split: {', '.join(others)}."
    facts = (
        ("champion", policy.champion),
        ("challenger", policy.challenger or "none"),
        ("shadow", f"{policy.shadow} of {policy.shadow_percent} %" if policy.shadow else "none"),
        ("guard", MEANINGS.get(policy.guard, policy.guard)),
        ("generation", f"{policy.generation}; {live_proxies_words(policy.proxies, policy.proxies_on_generation)}"),
    )
    commands = (f"understudy rollout start {name} VERSION --reason '…'",)
    back = act_path(record.model_name, ROLL_BACK, None)
    return ModelPage(record.model_name, sentence, facts, changes, commands, back)
