"""One rollout that fails keeps no other from its look; a lost leadership ends all of them."""

import pytest

from understudy.errors import LeadershipLost
from understudy.rollout.checks.each_by_itself import EachByItself


def test_all_are_looked_at_and_the_last_failure_is_raised_at_the_end():
    each, looked_at = EachByItself(), []
    for number in range(4):
        with each.one():
            looked_at.append(number)
            if number in (1, 2):
                raise ValueError(number)

    with pytest.raises(ValueError, match="2"):
        each.end()
    assert looked_at == [0, 1, 2, 3]


def test_without_a_failure_nothing_is_raised():
    each = EachByItself()
    with each.one():
        pass

    each.end()


def test_who_leads_no_more_looks_at_no_other():
    each = EachByItself()

    with pytest.raises(LeadershipLost), each.one():
        raise LeadershipLost("another monitor leads")
