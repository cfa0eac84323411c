import pytest
from builders import a_policy

from understudy.core.routing.policy import PolicySnapshot, serving_policy_of
from understudy.errors import PolicyNotLoaded, UnknownModel


def test_a_policy_is_looked_up_or_said_to_be_missing_and_why():
    policy = a_policy()
    snapshot = PolicySnapshot(policies={"visits": policy})

    assert serving_policy_of(snapshot, "visits") is policy
    with pytest.raises(UnknownModel):
        serving_policy_of(snapshot, "digits")
    with pytest.raises(PolicyNotLoaded):
        serving_policy_of(None, "visits")
