"""How old charts may be from which other parts of a page take what failing calls failed with."""

import pytest

from understudy.entrypoints.console.pages.charts import CHARTS_SECONDS, MAX_AGE_SECONDS, charts_known
from understudy.entrypoints.console.questions import Questions
from understudy.entrypoints.console.views.rollouts.charts import ChartsPart


class Clock:
    """A monotonic clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("is_final", "age_seconds", "is_known"),
    [
        (False, MAX_AGE_SECONDS, True),
        (False, MAX_AGE_SECONDS + 0.1, False),
        (True, MAX_AGE_SECONDS + 3_600.0, True),
    ],
    ids=["three periods", "older", "drawn after the end"],
)
async def test_old_charts_are_as_if_there_were_none_unless_the_rollout_was_over(is_final, age_seconds, is_known):
    clock, drawn = Clock(), ChartsPart("20 Nov 12:00:00", (), (), (), is_final)
    questions = Questions(monotonic=clock)

    async def draw() -> ChartsPart:
        return drawn

    await questions.shared(("charts", "churn", 1), draw, CHARTS_SECONDS)
    clock.now = age_seconds
    known = charts_known(questions, "churn", 1)

    assert (known is not None and known.value is drawn) is is_known
    assert charts_known(questions, "churn", 2) is None
