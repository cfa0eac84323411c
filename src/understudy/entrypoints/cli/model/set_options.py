"""The options of ``understudy model set``."""

from typing import Annotated

import typer

# A table of options is as wide as its longest ones: of all of them in one, 80 columns would cut names.
_WHO, _WATCHED = "Who answers", "What is watched"
Champion = Annotated[str | None, typer.Option(metavar="VERSION", rich_help_panel=_WHO, help="Who answers.")]
Challenger = Annotated[
    str | None, typer.Option(metavar="VERSION|none", rich_help_panel=_WHO, help="Who answers a share.")
]
Weight = Annotated[
    int | None, typer.Option(metavar="PERCENT", rich_help_panel=_WHO, help="The challenger's share, 0 to 100.")
]
Shadow = Annotated[
    str | None, typer.Option(metavar="VERSION|none", rich_help_panel=_WHO, help="Who sees calls, unanswered.")
]
ShadowPercent = Annotated[
    int | None, typer.Option(metavar="PERCENT", rich_help_panel=_WHO, help="Of the entities, 0 to 100.")
]
Fallback = Annotated[
    bool | None,
    typer.Option(
        "--fallback/--no-fallback", rich_help_panel=_WHO, help="Whether the champion stands in for the challenger."
    ),
]
Salt = Annotated[
    str | None, typer.Option(metavar="TEXT|none", rich_help_panel=_WHO, help="Hashed in place of the model's name.")
]
InputSamplePercent = Annotated[
    int | None,
    typer.Option(
        metavar="PERCENT", rich_help_panel=_WATCHED, help="Of the entities: their inputs are logged. 0: of none."
    ),
]
GuardMode = Annotated[
    str | None,
    typer.Option(metavar="rollback|alert|off", rich_help_panel=_WATCHED, help="What a share that does worse leads to."),
]
OnDrift = Annotated[
    str | None,
    typer.Option(metavar="alert|rollback", rich_help_panel=_WATCHED, help="What a challenger that drifts leads to."),
]
CategoryHoldout = Annotated[
    int | None,
    typer.Option(
        metavar="PERCENT",
        rich_help_panel=_WATCHED,
        help="Of a category that routes to the challenger: who stays, 0 to 50.",
    ),
]
Arms = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VERSION=PERCENT",
        rich_help_panel=_WHO,
        help="A further version's share; 0 ends it, none ends them all.",
    ),
]
ExpectGeneration = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Change nothing when the policy has moved on (exit 5).")
]
