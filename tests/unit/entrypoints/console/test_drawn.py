"""The part of a page that has the charts: when it is asked for again, and what it says of those that are old."""

import pytest

from understudy.entrypoints.console.looks import Templates, read_static
from understudy.entrypoints.console.views.rollouts.charts import ChartsPart

TEMPLATES = Templates(read_static())


def part(*, is_final: bool) -> ChartsPart:
    return ChartsPart("12:00:00", ("<svg></svg>",), (), (), is_final)


@pytest.mark.parametrize(
    ("view", "trigger"),
    [(None, "every 2s"), (part(is_final=False), "every 15s"), (part(is_final=True), None)],
    ids=["not there yet", "under way", "drawn after the end"],
)
def test_it_is_asked_for_until_it_was_drawn_after_the_end(view, trigger):
    values = {"view": view, "problem": None, "is_stale": False, "address": "/live/c", "period": 15, "soon_period": 2}
    html = TEMPLATES.render("_drawn.html", values)

    assert (f'hx-get="/live/c" hx-trigger="{trigger}"' in html) == (trigger is not None)
    assert html.count("hx-get") == (trigger is not None)


@pytest.mark.parametrize("is_final", [False, True])
def test_charts_that_are_old_say_so_unless_the_rollout_is_over(is_final):
    view = part(is_final=is_final)
    values = {"view": view, "problem": None, "is_stale": True, "address": "/live/c", "period": 15, "soon_period": 2}
    html = TEMPLATES.render("_drawn.html", values)

    assert ("what passed then may not pass now" in html) is not is_final
