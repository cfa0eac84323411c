"""Addresses of the console's own pages."""

import pytest

from understudy.entrypoints.console.views.links import beginning_of, entity_path


@pytest.mark.parametrize(
    ("act", "page"),
    [
        ("/models/a%2Facts%2Fset/acts/set", "/models/a%2Facts%2Fset/policy"),
        ("/models/churn/acts/restore", "/models/churn/audit"),
        ("/models/churn/acts/start", "/models/churn/start"),
        ("/models/churn/acts/rollback", "/models/churn/acts/rollback"),
    ],
)
def test_an_act_begins_anew_at_a_page_that_needs_no_form(act, page):
    assert beginning_of(act) == page


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        ("a/b", "/models/m%2Fn/entities/a%2Fb"),
        ("..", "/models/m%2Fn/entities?id=.."),
        (".", "/models/m%2Fn/entities?id=."),
        ("...", "/models/m%2Fn/entities/..."),
    ],
)
def test_a_browser_takes_no_part_of_an_entity_out_of_its_path(entity, path):
    assert entity_path("m/n", entity) == path
