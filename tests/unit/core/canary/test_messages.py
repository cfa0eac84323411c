"""What an analysis says to people."""

import pytest

from understudy.core.canary.messages import detectable_words


@pytest.mark.parametrize(("ratio", "said"), [(1.34, "1.3"), (36.4, "36"), (118.4, "120"), (1_240.0, "1,200")])
def test_a_multiple_is_said_with_two_digits_and_without_a_power_of_ten(ratio, said):
    assert f"to {said} times or more would have been seen" in detectable_words(ratio, 3.0, 221)
