"""The options of ``understudy model set``."""

from typing import Annotated

import typer

Champion = Annotated[str | None, typer.Option(metavar="VERSION", help="Who answers.")]
Challenger = Annotated[str | None, typer.Option(metavar="VERSION|none", help="Who answers a share.")]
Weight = Annotated[int | None, typer.Option(metavar="PERCENT", help="The challenger's share, 0 to 100.")]
Shadow = Annotated[str | None, typer.Option(metavar="VERSION|none", help="Who sees calls, unanswered.")]
ShadowPercent = Annotated[int | None, typer.Option(metavar="PERCENT", help="Of the entities, 0 to 100.")]
Fallback = Annotated[
    bool | None, typer.Option("--fallback/--no-fallback", help="Whether the champion stands in for the challenger.")
]
Salt = Annotated[str | None, typer.Option(metavar="TEXT|none", help="Hashed in place of the model's name.")]
InputSamplePercent = Annotated[
    int | None, typer.Option(metavar="PERCENT", help="Of the entities: their inputs are logged. 0: of none.")
]
GuardMode = Annotated[
    str | None, typer.Option(metavar="rollback|alert|off", help="What a share that does worse leads to.")
]
OnDrift = Annotated[str | None, typer.Option(metavar="alert|rollback", help="What a challenger that drifts leads to.")]
CategoryHoldout = Annotated[
    int | None,
    typer.Option(metavar="PERCENT", help="Of a category that routes to the challenger: who stays, 0 to 50."),
]
Arms = Annotated[
    list[str] | None,
    typer.Option(metavar="VERSION=PERCENT|none", help="A further version's share; 0 ends it, none ends them all."),
]
ExpectGeneration = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Change nothing when the policy has moved on (exit 5).")
]
