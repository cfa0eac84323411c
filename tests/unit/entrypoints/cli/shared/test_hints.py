"""The command that helps after a refusal, by the database's own words."""

import pytest

from understudy.entrypoints.cli.shared.hints import next_command


@pytest.mark.parametrize(
    ("refusal", "command"),
    [
        ("version 1 of churn is the champion and cannot be retired", "model set churn --champion VERSION --reason"),
        ("version 1 of churn is the challenger and cannot be retired", "model set churn --challenger none --reason"),
        ("version 1 of my churn is the shadow and cannot be retired", "model set 'my churn' --shadow none --reason"),
        ("version 9 of churn is an arm and cannot be retired", "model set churn --arm 9=0 --reason"),
        (
            "version 1 of churn is kept warm by rollout 7 and cannot be retired: it comes back if it gets worse",
            "rollout wait churn --until finished",
        ),
        ("version 3 of churn is retired and cannot be challenger", "version restore churn 3 brings it back"),
        ("version 3 of churn is retired and cannot be an arm", "version restore churn 3 brings it back"),
    ],
)
def test_what_stands_in_the_way_of_a_role_or_of_retiring_is_taken_away_by_a_command(refusal, command):
    assert (next_command(refusal) or "").startswith(f"understudy {command}")


def test_a_refusal_that_no_command_helps_with_keeps_its_own_advice():
    assert next_command("version 1 of churn is the champion and cannot be deleted") is None
