"""What ``drift skew`` says and advises where nothing was compared, or nothing of late."""

import io

import pytest
from rich.console import Console

from understudy.core.routing.policy import Role
from understudy.entrypoints.cli.drift.skew import next_step, skew_texts
from understudy.monitoring.skew_view import SkewView, VersionSkew


@pytest.mark.parametrize(
    ("percent", "command"),
    [(0, "understudy model set visits --input-sample-percent 5"), (5, "understudy serve monitor")],
)
def test_without_a_comparison_the_advice_names_the_setting_of_the_store_within_80_columns(percent, command):
    shown = io.StringIO()
    console = Console(file=shown, width=80, color_system=None, highlight=False)

    for text in skew_texts(SkewView("visits", 0.0, (), percent)):
        console.print(text)

    first, *purpose = shown.getvalue().rstrip().splitlines()[-3:]
    assert first == f"→ {command}"
    assert purpose[1].startswith("  UNDERSTUDY_FEATURE_REDIS_URL or UNDERSTUDY_FEATURE_TABLE names")


@pytest.mark.parametrize(
    ("until", "percent", "said", "command"),
    [
        (10_000.0, 5, " No call of the last 2 h 47 m was compared.", "understudy doctor"),
        (
            10_000.0,
            0,
            " No call of the last 2 h 47 m was compared.",
            "understudy model set visits --input-sample-percent 5",
        ),
        (16_500.0, 5, "", "understudy serve monitor"),
    ],
)
def test_a_comparison_that_is_old_says_since_when_and_where_to_look(until, percent, said, command):
    view = SkewView("visits", 20_000.0, (VersionSkew("6", Role.CHAMPION, (), until),), percent)

    assert view.sentence == f"No call was compared with a feature store.{said}"
    assert next_step(view).command == command
