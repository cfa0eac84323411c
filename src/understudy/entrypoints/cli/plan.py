"""``understudy plan``: how risky a change is, and how long its rollout would take."""

import typer

from understudy.entrypoints.cli.shared.options import AsJson, ModelName
from understudy.entrypoints.cli.shared.policy_changes.rollout_plan import (
    ExpectDifferentScores,
    Freezes,
    PlanSource,
    VersionName,
    plan_source_of,
    prepared_rollout_texts,
)
from understudy.entrypoints.cli.shared.rendering import show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.entrypoints.documents.rollouts import prepared_document
from understudy.rollout.operations import StartAsked

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    *,
    model: ModelName,
    version: VersionName,
    plan: PlanSource = None,
    freeze: Freezes = None,
    expect_different_scores: ExpectDifferentScores = False,
    as_json: AsJson = False,
) -> None:
    """Say how risky it is to replace the champion by a version, and how long that takes at today's traffic."""
    source, freezes = plan_source_of(plan), freeze or ()
    asked = StartAsked(model, version, source, freezes, expect_different_scores)
    prepared = with_control_plane(lambda control_plane: control_plane.rollouts.prepare(asked))
    text = prepared_rollout_texts(prepared, asked_plan=plan, freezes=freezes, expects_scores=expect_different_scores)
    show({"plan": prepared_document(prepared)}, *text, as_json=as_json)
