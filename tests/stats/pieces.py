"""How many runs a bar takes: few by default, all that the page names, or a piece of them.

All are made with ``UNDERSTUDY_STATS=full``. ``UNDERSTUDY_STATS_RUNS=20 UNDERSTUDY_STATS_SEED=40`` makes the runs 40 to
59 of each bar, so that a long one can be done in pieces: the numbers that they print add up. With
``UNDERSTUDY_STATS_KEPT=FOLDER`` none is made twice (:mod:`stats.kept_runs`).
"""

import os
import sys

IS_FULL = os.environ.get("UNDERSTUDY_STATS") == "full"
FIRST_SEED = int(os.environ.get("UNDERSTUDY_STATS_SEED", "0"))


def runs(short: int, full: int = 300) -> range:
    """Return the seeds of the runs to make."""
    return range(FIRST_SEED, FIRST_SEED + int(os.environ.get("UNDERSTUDY_STATS_RUNS", full if IS_FULL else short)))


def say(bar: str, figure: str) -> None:
    """Print a figure next to its bar; ``pytest -s`` shows it."""
    sys.stdout.write(f"\n{bar}: {figure}")
    sys.stdout.flush()
