"""The form of a policy: what it asks for, what holds, and where a refusal stands."""

from datetime import UTC, datetime

import pytest

from understudy.core.routing.arms import BucketRange
from understudy.entrypoints.console.views.confirmations.policy_change import done_words, set_command
from understudy.entrypoints.console.views.policy import FIELDS, PolicySeen, asked_change, policy_page, standing_values
from understudy.errors import NotRegistered, PolicyRefused
from understudy.ports.registry.registry import ChangedPolicy, PolicyRecord
from understudy.registry.asked_change import AskedChange

AT = datetime(2026, 11, 20, 13, 0, tzinfo=UTC)
POLICY = PolicyRecord("churn", "6", "7", 10, None, 100, True, None, {}, None, None, 4, AT, "dana", 1, 1)
WITH_ARM = POLICY._replace(arms=(BucketRange("9", 90, 99),))


def test_a_form_that_is_sent_as_it_came_asks_for_nothing():
    assert asked_change(WITH_ARM, "churn", standing_values(WITH_ARM), 4) == AskedChange("churn", {}, None, 4)


@pytest.mark.parametrize(
    ("asked", "changes", "weights", "command"),
    [
        ({"challenger_weight": "25"}, {"challenger_weight": 25}, None, "--weight 25"),
        (
            {"challenger": "none", "guard": "off"},
            {"challenger": None, "guard": "off"},
            None,
            "--challenger none --guard off",
        ),
        ({"challenger_weight": " 25 "}, {"challenger_weight": 25}, None, "--weight 25"),
        ({"shadow": " 9 "}, {"shadow": " 9 "}, None, "--shadow ' 9 '"),
        ({"arms": "8=5, 9=3"}, {}, {"9": 3, "8": 5}, "--arm 9=3 --arm 8=5"),
        ({"arms": "8=5"}, {}, {"9": 0, "8": 5}, "--arm 9=0 --arm 8=5"),
        ({"arms": " "}, {}, {}, "--arm none"),
        ({"salt": "x"}, {}, None, ""),
    ],
)
def test_what_differs_is_asked_for_and_is_the_same_command(asked, changes, weights, command):
    change = asked_change(WITH_ARM, "churn", asked, 4)

    assert change == AskedChange("churn", changes, weights, 4)
    assert set_command("churn", change) == f"understudy model set churn {command} --reason '…'".replace("  ", " ")


@pytest.mark.parametrize(
    ("refused", "field"),
    [
        (PolicyRefused("challenger_weight of churn is a percentage from 0 to 100, not 101"), "challenger_weight"),
        (PolicyRefused("further arms cannot have that: 6 is the champion"), "arms"),
        (NotRegistered("churn has no version '7'; it has 6"), "challenger"),
        (PolicyRefused("it is not permitted"), None),
    ],
)
def test_a_refusal_stands_at_its_field_or_above_all(refused, field):
    page = policy_page(PolicySeen("churn", POLICY, (), None), {"challenger_weight": "101"}, refused)

    assert [one.name for one in page.fields if one.problem] == ([] if field is None else [field])
    assert bool(page.problem) == (field is None)
    assert next(one.value for one in page.fields if one.name == "challenger_weight") == "101"


def test_a_model_without_a_policy_is_asked_for_its_first_champion():
    page = policy_page(PolicySeen("churn", None, (), None))

    assert (page.generation, [one.name for one in page.fields]) == (0, list(FIELDS))
    assert asked_change(None, "churn", {**standing_values(None), "champion": "6"}, 0).changes == {"champion": "6"}


def test_an_open_rollout_is_warned_of():
    assert "Rollout 8 is open" in policy_page(PolicySeen("churn", POLICY, (), 8)).warning


def test_what_was_changed_is_told_as_the_command_line_tells_it():
    after = POLICY._replace(challenger_weight=50, generation=5)

    assert done_words(ChangedPolicy(POLICY, after), "1 of 1 live proxies act on it") == (
        "Done: challenger_weight 10 → 50; 40 % of the entities change their version. "
        "Generation 5; 1 of 1 live proxies act on it."
    )
    assert done_words(ChangedPolicy(POLICY, POLICY), "").startswith("Nothing changed: churn is like that already")
