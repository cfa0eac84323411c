"""One model on a screen: its split, its policy, its versions."""

from collections.abc import Sequence
from datetime import datetime
from shlex import quote
from typing import Any, NamedTuple

from rich.text import Text

from understudy.bootstrap.control_plane import ControlPlane
from understudy.core.routing.arms import arm_percents
from understudy.entrypoints.cli.shared.rendering import Column, a_table, facts, nothing_as, show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.entrypoints.cli.shared.texts.guard_text import drift_setting, guard_words, newest_guard
from understudy.entrypoints.cli.shared.times import ago_and_at, instant, when_words
from understudy.entrypoints.documents.policies import applied_document, contradiction_document, model_document
from understudy.ports.loading.loading_registry import MissingVersion
from understudy.ports.registry.registry import AppliedFile, ModelRecord, PolicyRecord, VersionRecord
from understudy.ports.rollout.rollout_store import RolloutRecord, UnreadableRollout
from understudy.registry.findings.loading import missing_words
from understudy.registry.policy_files import Contradiction, contradiction_words, explained_contradictions

_BAR_CELLS = 40


class _View(NamedTuple):
    """What is known of one model."""

    record: ModelRecord
    versions: Sequence[VersionRecord]
    guard: Sequence[RolloutRecord | UnreadableRollout]
    missing: Sequence[MissingVersion]
    applied: AppliedFile | None
    contradictions: Sequence[Contradiction]


def show_view(model: str, *, utc: bool, as_json: bool) -> None:
    """Read a model and show it."""
    seen = with_control_plane(lambda control_plane: _read(control_plane, model))
    applied = None
    if seen.applied is not None:
        applied = {
            **applied_document(seen.applied),
            "contradictions": [contradiction_document(contradiction) for contradiction in seen.contradictions],
        }
    document = {
        "model": {
            **model_document(seen.record),
            "versions": [version._asdict() for version in seen.versions],
            "not_loaded": [one._asdict() for one in seen.missing],
            "applied": applied,
        }
    }
    lines = [Text(f"version {one.version} is {missing_words(one)}", "red") for one in seen.missing]
    if seen.applied is not None:
        lines += [
            Text("! ", "yellow").append(contradiction_words(contradiction, seen.applied))
            for contradiction in seen.contradictions
        ]
    show(document, *_model_view(seen, utc=utc), *lines, as_json=as_json)


async def _read(control_plane: ControlPlane, model: str) -> _View:
    registry = control_plane.registry
    record, versions = await registry.show_model(model), await registry.list_versions(model)
    guard, missing = await newest_guard(control_plane.rollouts, model), await control_plane.missing_versions(model)
    applied = next(iter(await registry.list_applied(model)), None)
    contradictions: Sequence[Contradiction] = ()
    if applied is not None and record.policy is not None:
        contradictions = await explained_contradictions(registry, applied, record.policy)
    return _View(record, versions, guard, missing, applied, contradictions)


def _model_view(seen: _View, *, utc: bool) -> list[Any]:
    model = seen.record
    rows = [
        (v.version, v.status, v.protocol, ", ".join(v.endpoints) or "none yet", when_words(v.created_at, utc=utc))
        for v in seen.versions
    ]
    table = a_table(
        [
            Column("version"),
            Column("status"),
            Column("protocol", drop=2),
            Column("servers"),
            Column("registered", drop=1),
        ],
        rows,
    )
    policy = model.policy
    if policy is None:
        advice = f"→ understudy model set {quote(model.model_name)} --champion VERSION serves it"
        return [Text(f"{model.model_name} has no policy: it is not served", "bold"), advice, "", table]
    head = Text().append(policy.model_name, "bold").append(f"  generation {policy.generation} on ")
    head.append(f"{policy.proxies_on_generation} of {policy.proxies} live proxies")
    head.append(f"\nchanged {_when(policy.updated_at, utc=utc)} by {policy.updated_by}", "dim")
    if seen.applied is not None:
        applied = seen.applied
        head.append(
            f"\napplied from {applied.path} by {applied.applied_by}, {_when(applied.applied_at, utc=utc)}", "dim"
        )
    settings = [*_settings_of(policy), ("guard", guard_words(policy.guard, seen.guard)), drift_setting(policy.on_drift)]
    return [head, "", *_split_of(policy), "", facts(settings), "", table]


def _when(moment: datetime, *, utc: bool) -> str:
    return instant(moment) if utc else ago_and_at(moment)


def _split_of(policy: PolicyRecord) -> list[Text]:
    further = arm_percents(policy.arms)
    champion_percent = 100 - policy.challenger_weight - sum(further.values())
    lines = [_bar(f"champion {policy.champion}", champion_percent, "green")]
    if policy.challenger is not None:
        lines.append(_bar(f"challenger {policy.challenger}", policy.challenger_weight, "yellow"))
    lines += [_bar(f"arm {arm}", percent, "yellow") for arm, percent in further.items()]
    if policy.shadow is not None:
        lines.append(_bar(f"shadow {policy.shadow}", policy.shadow_percent, "blue").append(" is shown", "dim"))
    return lines


def _buckets(policy: PolicyRecord) -> str:
    return ", ".join(f"{arm} has the buckets {first} to {last}" for arm, first, last in policy.arms)


def _bar(label: str, percent: int, style: str) -> Text:
    full = round(_BAR_CELLS * percent / 100)
    # A share that is there must be seen, and one that is not whole must not look whole.
    full = min(max(full, int(percent > 0)), _BAR_CELLS - int(percent < 100))  # noqa: PLR2004 - percent
    bar = Text(f"  {label:<16} ").append("█" * full, style).append("░" * (_BAR_CELLS - full), "dim")
    return bar.append(f" {percent:3d} %")


def _settings_of(policy: PolicyRecord) -> list[tuple[str, str]]:
    fallback = "the champion answers when the challenger fails" if policy.fallback else "off"
    categories = ", ".join(f"{category}: {role}" for category, role in policy.category_roles.items())
    if policy.category_holdout_percent:
        categories += f"; {policy.category_holdout_percent} % of the challenger's stay with the champion"
    return [
        ("fallback", fallback),
        ("salt", nothing_as(policy.salt, "none: the model's name is hashed")),
        ("categories", nothing_as(categories, "none")),
        ("further arms", nothing_as(_buckets(policy), "none")),
        ("previously", nothing_as(policy.previous_champion, "no other champion")),
        ("inputs", _inputs_words(policy.input_sample_percent)),
    ]


def _inputs_words(percent: int) -> str:
    return f"logged of {percent} % of the entities" if percent else "not logged"
