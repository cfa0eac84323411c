"""Known checks: the rows of a rollout's last analysis, for the next one over the same closed windows.

Windows end every quarter of a minute, and a tick comes every five seconds: two of three analyses compare what the one
before compared, and differ in what only the clock says, how long a step has to go on. So the rows are kept with what
they were made of, and made anew as soon as anything else than the time differs; those of checks that go by the clock
are made at each look. A verdict is the same with and without.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from understudy.core.canary.checks import BY_CLOCK, judged_checks
from understudy.core.canary.decision import Evidence
from understudy.core.canary.evidence.check_input import CheckInput


class _Judged(NamedTuple):
    inputs: CheckInput
    needed: Mapping[str, float]
    rows: Sequence[Evidence]


class KnownChecks:
    """Comes to what :func:`understudy.core.canary.checks.judged_checks` does, and remembers the last one.

    It holds on to the windows that were compared, which are a part of what a rollout's cache holds anyway.
    """

    def __init__(self) -> None:
        self._last: _Judged | None = None

    def __call__(self, inputs: CheckInput, needed: Mapping[str, float]) -> Sequence[Evidence]:
        """Return the rows, from what is compared and what each check in use needs."""
        last = self._last
        if last is not None and last.needed == needed and last.inputs.is_judged_like(inputs):
            rows = last.rows
            if timely := {name: most for name, most in needed.items() if name in BY_CLOCK}:
                anew = {row.check: row for row in judged_checks(inputs, timely)}
                rows = [anew.get(row.check, row) for row in rows]
        else:
            rows = judged_checks(inputs, needed)
        # The newest windows take the place of equal ones in any case: a cache holds those, and not the ones before.
        self._last = _Judged(inputs, needed, rows)
        return rows
