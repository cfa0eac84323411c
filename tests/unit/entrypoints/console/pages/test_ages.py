"""What pages say of their figures' age."""

import pytest

from understudy.entrypoints.console.pages.answers import age_of
from understudy.entrypoints.console.questions import Answer
from understudy.errors import RegistryUnavailable


@pytest.mark.parametrize(
    ("answer", "is_stale"),
    [
        (Answer(1, 1_000.0, 3.0, is_late=True), False),
        (Answer(1, 1_000.0, 6.0, is_late=True), False),
        (Answer(1, 1_000.0, 6.1), True),
        (Answer(1, 1_000.0, 0.1, RegistryUnavailable("away")), True),
    ],
    ids=["a newer one is on its way", "three periods", "older", "Postgres is away"],
)
def test_figures_are_stale_once_three_periods_are_over_or_there_are_no_newer_ones(answer, is_stale):
    assert age_of(answer, 2.0)["is_stale"] is is_stale
