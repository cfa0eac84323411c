"""``understudy model``: a model's serving policy, and the versions that answer its calls.

What ``list`` does not need is imported by the verb that does: the others judge schemas and know rollouts (numpy).
"""

from shlex import quote
from typing import Annotated

import typer

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
    actor = actor_of_command(required_reason(reason, dry_run=dry_run))
    wanted = Asked(model, changes, weights, actor, expect_generation, dry_run, yes)
    make_change(wanted, as_json=as_json)


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
