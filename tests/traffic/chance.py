"""Whether the tests draw at random: only when asked, so that nobody's change fails on another person's draw."""

import os
from random import SystemRandom

IS_RANDOM = os.environ.get("UNDERSTUDY_TEST_RANDOM", "") not in ("", "0")
"""``UNDERSTUDY_TEST_RANDOM=1`` asks for draws that nobody has seen yet, to look for faults."""
_FIXED = 20_261_121


def seed() -> int:
    """Return what a test's own generator starts from; the test says it when it fails.

    Returns:
        A fixed number; with ``UNDERSTUDY_TEST_RANDOM=1`` another one each time, from 0 to 2³² - 1.
    """
    return SystemRandom().randrange(2**32) if IS_RANDOM else _FIXED
