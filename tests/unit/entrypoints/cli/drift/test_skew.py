"""What ``drift skew`` advises where nothing was compared."""

import io

import pytest
from rich.console import Console

from understudy.entrypoints.cli.drift.skew import skew_texts
from understudy.monitoring.skew_view import SkewView


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
