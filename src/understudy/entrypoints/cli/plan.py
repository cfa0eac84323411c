"""``understudy plan``: how risky a change is, and how long its rollout would take."""

import time

import typer

from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.shared.environment import settings_with_demo
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
from understudy.entrypoints.cli.shared.session import with_session
from understudy.entrypoints.documents.rollouts import prepared_document
from understudy.rollout.start.start import ENTITIES_WAIT_SECONDS, OUTCOMES_WAIT_SECONDS, Prepared, prepare

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
    settings = settings_with_demo()

    async def look(session: Session) -> Prepared:
        return await prepare(
            session.registry,
            session.windows,
            model,
            version,
            source,
            now=time.time(),
            budget_ratio=settings.challenger_budget_ratio,
            freezes=freezes,
            expect_different_scores=expect_different_scores,
            entities=session.history(ENTITIES_WAIT_SECONDS),
            outcome_before=session.outcome_before(OUTCOMES_WAIT_SECONDS),
        )

    prepared = with_session(look, settings)
    text = prepared_rollout_texts(prepared, asked_plan=plan, freezes=freezes, expects_scores=expect_different_scores)
    show({"plan": prepared_document(prepared)}, *text, as_json=as_json)
