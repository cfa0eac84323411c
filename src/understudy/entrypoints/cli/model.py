"""``understudy model``: a model's serving policy, and the versions that answer its calls."""

import re
from collections.abc import Sequence
from functools import partial
from shlex import quote
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from understudy.bootstrap.session import Session
from understudy.core.routing.arms import arm_percents
from understudy.core.schema.input_diff import InputDifferences, input_differences
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.guard_text import drift_setting, guard_words, newest_guard
from understudy.entrypoints.cli.shared.input_warnings import input_warnings
from understudy.entrypoints.cli.shared.options import (
    AsJson,
    DryRun,
    ModelName,
    Reason,
    Yes,
    confirm_traffic_move,
    required_reason,
)
from understudy.entrypoints.cli.shared.rendering import Column, a_table, advise, facts, nothing_as, show
from understudy.entrypoints.cli.shared.session import with_registry, with_session
from understudy.entrypoints.cli.shared.times import ago
from understudy.entrypoints.documents.policies import model_document, policy_document
from understudy.lifecycle.policy_changes import differences, moved_entities_percent, moves_traffic, with_arms
from understudy.lifecycle.registry import set_policy
from understudy.ports.registry.registry import Actor, ChangedPolicy, ModelRecord, PolicyRecord, Registry, VersionRecord
from understudy.ports.rollout.rollout_store import RolloutRecord

app = typer.Typer(no_args_is_help=True, help="List and show models; set who answers their calls.", add_completion=False)
NONE = "none"
_BAR_CELLS = 40


class _Newcomer(NamedTuple):
    """A version that gets a role, beside the champion so far."""

    version: str
    champion: str
    found: InputDifferences

    @property
    def warnings(self) -> list[Text]:
        return input_warnings(self.champion, self.version, self.found)


class _Asked(NamedTuple):
    """A change of a model's policy as a command asks for it."""

    model: str
    changes: dict[str, Any]
    weights: dict[str, int] | None
    """Of the further arms; ``None``: they stay."""
    actor: Actor
    expect_generation: int | None
    dry_run: bool
    yes: bool


@app.command("list")
def list_models(*, as_json: AsJson = False) -> None:
    """List every model and its split."""
    found = with_registry(lambda registry: registry.list_models())
    columns = [
        Column("model"),
        Column("champion"),
        Column("challenger"),
        Column("weight", right=True),
        Column("further arms", drop=5),
        Column("shadow"),
        Column("generation", drop=1, right=True),
        Column("proxies on it", drop=2, right=True),
        Column("versions", drop=4, right=True),
        Column("changed", drop=3),
    ]
    text = a_table(columns, map(_row_of, found)) if found else "No model is registered yet."
    show({"models": [model_document(model) for model in found]}, text, as_json=as_json)


@app.command("show")
def show_model(*, model: ModelName, as_json: AsJson = False) -> None:
    """Show a model: its split, its policy, its versions."""

    async def read(session: Session) -> tuple[ModelRecord, list[VersionRecord], Sequence[RolloutRecord]]:
        record, versions = await session.registry.show_model(model), await session.registry.list_versions(model)
        return record, list(versions), await newest_guard(session, model)

    record, versions, guard = with_session(read)
    document = {"model": {**model_document(record), "versions": [version._asdict() for version in versions]}}
    show(document, *_model_view(record, versions, guard), as_json=as_json)


@app.command("set")
def set_model(
    *,
    model: ModelName,
    champion: Annotated[str | None, typer.Option(metavar="VERSION", help="Who answers.")] = None,
    challenger: Annotated[str | None, typer.Option(metavar="VERSION|none", help="Who answers a share.")] = None,
    weight: Annotated[int | None, typer.Option(metavar="PERCENT", help="The challenger's share, 0 to 100.")] = None,
    shadow: Annotated[str | None, typer.Option(metavar="VERSION|none", help="Who sees calls, unanswered.")] = None,
    shadow_percent: Annotated[int | None, typer.Option(metavar="PERCENT", help="Of the entities, 0 to 100.")] = None,
    fallback: Annotated[
        bool | None, typer.Option("--fallback/--no-fallback", help="Whether the champion stands in for the challenger.")
    ] = None,
    salt: Annotated[str | None, typer.Option(metavar="TEXT|none", help="Hashed in place of the model's name.")] = None,
    input_sample_percent: Annotated[
        int | None, typer.Option(metavar="PERCENT", help="Of the entities: their inputs are logged. 0: of none.")
    ] = None,
    guard: Annotated[
        str | None, typer.Option(metavar="rollback|alert|off", help="What a share that does worse leads to.")
    ] = None,
    on_drift: Annotated[
        str | None, typer.Option(metavar="alert|rollback", help="What a challenger that drifts leads to.")
    ] = None,
    category_holdout: Annotated[
        int | None,
        typer.Option(metavar="PERCENT", help="Of a category that routes to the challenger: who stays, 0 to 50."),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(metavar="VERSION=PERCENT|none", help="A further version's share; 0 ends it, none ends them all."),
    ] = None,
    expect_generation: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Change nothing when the policy has moved on (exit 5).")
    ] = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change a model's policy, or make its first one (--champion). Every proxy acts on it within 100 ms."""
    asked = {
        "champion": champion,
        "challenger": challenger,
        "challenger_weight": weight,
        "shadow": shadow,
        "shadow_percent": shadow_percent,
        "fallback": fallback,
        "salt": salt,
        "input_sample_percent": input_sample_percent,
        "guard": guard,
        "on_drift": on_drift,
        "category_holdout_percent": category_holdout,
    }
    changes, weights = changes_of(asked), arm_weights_of(arm or ())
    if not changes and weights is None:
        raise CommandRefused(
            ExitCode.USAGE, "nothing to change was named", f"understudy model set {quote(model)} --weight 5"
        )
    actor = actor_of_command(required_reason(reason, dry_run=dry_run))
    wanted = _Asked(model, changes, weights, actor, expect_generation, dry_run, yes)
    changed, newcomers = with_registry(lambda registry: _change(registry, wanted))
    warnings = [line for newcomer in newcomers for line in newcomer.warnings]
    document = _document(changed, newcomers, dry_run=dry_run)
    show(document, *_verdict(*changed, dry_run=dry_run), *warnings, as_json=as_json)


def _document(changed: ChangedPolicy, newcomers: Sequence[_Newcomer], *, dry_run: bool) -> dict[str, Any]:
    before, after = changed
    return {
        "policy": policy_document(after),
        "changed": changed.is_changed and not dry_run,
        "moved_percent": None if before is None else moved_entities_percent(before, after),
        "input_differences": {newcomer.version: newcomer.found._asdict() for newcomer in newcomers},
        "dry_run": dry_run,
    }


async def _change(registry: Registry, asked: _Asked) -> tuple[ChangedPolicy, list[_Newcomer]]:
    """Make the change, after the database's verdict on it and the question whether to make it."""
    standing = (await registry.show_model(asked.model)).policy
    wanted, expected = asked.changes, asked.expect_generation
    if asked.weights is not None:
        wanted = with_arms(standing, asked.changes, asked.weights)
        # Ranges are computed from what was there, so they are for that alone.
        expected = standing.generation if expected is None and standing is not None else expected
    make = partial(set_policy, registry, asked.model, wanted, asked.actor)
    proposed = await make(expected_generation=expected, dry_run=True)
    newcomers = await _newcomers(registry, *proposed)
    before, after = proposed
    if asked.dry_run:
        return proposed, newcomers
    if before is not None and moves_traffic(before, after):
        _confirm(before, after, newcomers, yes=asked.yes)
        # What was confirmed is a change of what was shown; with --yes there was no look to go stale.
        expected = expected if asked.yes or expected is not None else before.generation
    return await make(expected_generation=expected), newcomers


def _confirm(before: PolicyRecord, after: PolicyRecord, newcomers: list[_Newcomer], *, yes: bool) -> None:
    moves = _moves_text(before, after)
    what = f"This moves production traffic: {difference_text(before, after)}{moves and f'; {moves}'}"
    if not yes:
        advise(*(line.plain for newcomer in newcomers for line in newcomer.warnings))
    confirm_traffic_move(after.model_name, what, yes=yes)


async def _newcomers(registry: Registry, before: PolicyRecord | None, after: PolicyRecord) -> list[_Newcomer]:
    """Return the versions that get a role, or another one, and how their inputs differ from the champion's so far."""
    if before is None:
        return []
    changed = _roles_of(after) - _roles_of(before)
    versions = {version for _, version in changed if version not in (None, before.champion)}
    if not versions:  # weight 0 in an incident waits for nothing
        return []
    champion = await registry.show_version(after.model_name, before.champion)
    newcomers = []
    for version in sorted(filter(None, versions)):
        schema = (await registry.show_version(after.model_name, version)).input_schema
        newcomers.append(_Newcomer(version, before.champion, input_differences(champion.input_schema, schema)))
    return newcomers


def _roles_of(policy: PolicyRecord) -> set[tuple[str, str | None]]:
    named = {("champion", policy.champion), ("challenger", policy.challenger), ("shadow", policy.shadow)}
    return named | {("arm", version) for version, _, _ in policy.arms}


def changes_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the fields to change; ``none`` takes a role or the salt away."""
    changes = {name: value for name, value in asked.items() if value is not None}
    for name in ("challenger", "shadow", "salt"):
        if changes.get(name) == NONE:
            changes[name] = None
    return changes


def arm_weights_of(asked: Sequence[str]) -> dict[str, int] | None:
    """Return the percent of each further arm that is asked for; nothing for ``none``, ``None`` when none is asked for.

    Raises:
        CommandRefused: It is not ``VERSION=PERCENT``, or a version is named twice.
    """
    if not asked:
        return None
    if list(asked) == [NONE]:
        return {}
    weights: dict[str, int] = {}
    for text in asked:
        version, _, percent = text.rpartition("=")
        if not version or version in weights or not re.fullmatch(r"\d{1,3}", percent):
            raise CommandRefused(
                ExitCode.USAGE, f"--arm: {text!r} is no share of a version", "For example --arm 9=10, or --arm none."
            )
        weights[version] = int(percent)
    return weights


def difference_text(before: PolicyRecord | None, after: PolicyRecord) -> str:
    """Return what changes, in one line."""
    found = differences(before, after)
    return (
        ", ".join(f"{name} {_value_text(old)} → {_value_text(new)}" for name, (old, new) in found.items()) or "nothing"
    )


def _verdict(before: PolicyRecord | None, after: PolicyRecord, *, dry_run: bool) -> list[Any]:
    if before is not None and not differences(before, after):
        return [f"{after.model_name} is like that already (generation {before.generation}); nothing was changed."]
    pairs = [
        (name, f"{_value_text(old)} → {_value_text(new)}" if before is not None else _value_text(new))
        for name, (old, new) in differences(before, after).items()
    ]
    moves = _moves_text(before, after)
    if moves:
        pairs.append(("moves", moves))
    if dry_run:
        return [Text(f"Would change {after.model_name}; nothing was changed.", "bold"), facts(pairs)]
    head = Text("✔ ", "green").append(f"{after.model_name} is at generation {after.generation}", "bold")
    undo = f"→ understudy model show {quote(after.model_name)} says when every proxy acts on it"
    return [head, facts(pairs), undo]


def _value_text(value: Any) -> str:
    """Return a field's value; further arms as versions with their percent."""
    if not isinstance(value, tuple):
        return nothing_as(value)
    return nothing_as(", ".join(f"{arm} {percent} %" for arm, percent in arm_percents(value).items()))


def _moves_text(before: PolicyRecord | None, after: PolicyRecord) -> str:
    """Return how many entities change their version; nothing when none does, or when it is unknown."""
    percent = None if before is None else moved_entities_percent(before, after)
    return f"{percent} % of the entities change their version" if percent else ""


def _row_of(model: ModelRecord) -> tuple[str, ...]:
    policy = model.policy
    if policy is None:
        return (model.model_name, "no policy", "-", "-", "-", "-", "-", "-", str(model.version_count), "-")
    return (
        model.model_name,
        policy.champion,
        nothing_as(policy.challenger),
        f"{policy.challenger_weight} %",
        _value_text(policy.arms),
        nothing_as(policy.shadow),
        str(policy.generation),
        f"{policy.proxies_on_generation} of {policy.proxies}",
        str(model.version_count),
        ago(policy.updated_at),
    )


def _model_view(model: ModelRecord, versions: list[VersionRecord], guard: Sequence[RolloutRecord] = ()) -> list[Any]:
    rows = [
        (v.version, v.status, v.protocol, ", ".join(v.endpoints) or "none yet", ago(v.created_at)) for v in versions
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
    head.append(f"\nchanged {ago(policy.updated_at)} by {policy.updated_by}", "dim")
    settings = [*_settings_of(policy), ("guard", guard_words(policy.guard, guard)), drift_setting(policy.on_drift)]
    return [head, "", *_split_of(policy), "", facts(settings), "", table]


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
