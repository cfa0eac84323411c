"""``understudy model``: a model's serving policy, and the versions that answer its calls.

What ``list`` does not need is imported by the verb that does: the others judge schemas and know rollouts (numpy).
"""

from shlex import quote
from typing import Annotated

import typer

from understudy.entrypoints.cli.model.set_options import (
    Arms,
    CategoryHoldout,
    Challenger,
    Champion,
    ExpectGeneration,
    Fallback,
    GuardMode,
    InputSamplePercent,
    OnDrift,
    Salt,
    Shadow,
    ShadowPercent,
    Weight,
)
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, ModelName, Reason, Utc, Yes, required_reason
from understudy.entrypoints.cli.shared.rendering import Column, a_table, nothing_as, show
from understudy.entrypoints.cli.shared.session import with_registry
from understudy.entrypoints.cli.shared.texts.policy_text import value_text
from understudy.entrypoints.cli.shared.times import when_words
from understudy.entrypoints.documents.policies import model_document
from understudy.ports.registry.registry import ModelRecord

app = typer.Typer(no_args_is_help=True, help="List and show models; set who answers their calls.", add_completion=False)


@app.command("list")
def list_models(*, utc: Utc = False, as_json: AsJson = False) -> None:
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
        Column("changed", drop=0 if utc else 3),
    ]
    text = a_table(columns, [_row_of(model, utc=utc) for model in found]) if found else "No model is registered yet."
    show({"models": [model_document(model) for model in found]}, text, as_json=as_json)


@app.command("show")
def show_model(*, model: ModelName, utc: Utc = False, as_json: AsJson = False) -> None:
    """Show a model: its split, its policy, its versions."""
    from understudy.entrypoints.cli.model.view import show_view

    show_view(model, utc=utc, as_json=as_json)


@app.command("set")
def set_model(
    *,
    model: ModelName,
    champion: Champion = None,
    challenger: Challenger = None,
    weight: Weight = None,
    shadow: Shadow = None,
    shadow_percent: ShadowPercent = None,
    fallback: Fallback = None,
    salt: Salt = None,
    input_sample_percent: InputSamplePercent = None,
    guard: GuardMode = None,
    on_drift: OnDrift = None,
    category_holdout: CategoryHoldout = None,
    arm: Arms = None,
    expect_generation: ExpectGeneration = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change a model's policy, or make its first one (--champion). Every proxy acts on it within 100 ms."""
    from understudy.entrypoints.cli.model.change import Asked, arm_weights_of, changes_of, make_change

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
    actor = actor_of_command(required_reason(reason, dry_run=dry_run, yes=yes))
    wanted = Asked(model, changes, weights, actor, expect_generation, dry_run, yes)
    make_change(wanted, as_json=as_json)


@app.command("restore")
def restore_model(
    *,
    model: ModelName,
    generation: Annotated[int, typer.Argument(metavar="GENERATION", min=1, help="As understudy audit list names it.")],
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make a model's policy what it was at an older generation, as a new change."""
    from understudy.entrypoints.cli.model.change import Asked, make_change

    actor = actor_of_command(required_reason(reason, dry_run=dry_run, yes=yes))
    make_change(Asked(model, {}, None, actor, None, dry_run, yes, restored=generation), as_json=as_json)


def _row_of(model: ModelRecord, *, utc: bool) -> tuple[str, ...]:
    policy = model.policy
    if policy is None:
        return (model.model_name, "no policy", "-", "-", "-", "-", "-", "-", str(model.version_count), "-")
    return (
        model.model_name,
        policy.champion,
        nothing_as(policy.challenger),
        f"{policy.challenger_weight} %",
        value_text(policy.arms),
        nothing_as(policy.shadow),
        str(policy.generation),
        f"{policy.proxies_on_generation} of {policy.proxies}",
        str(model.version_count),
        when_words(policy.updated_at, utc=utc),
    )
