"""What an A/B test is asked to see, as people type it."""

import re

from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.experiments.declared_rows import MAX_AMOUNT, MIN_AMOUNT
from understudy.experiments.declared_tests import Wanted

WITHIN, EFFECT, LOOKS = "7d", "5%", 5
_EFFECT = re.compile(r"(?P<amount>\d*\.?\d+)(?P<unit>%|pt)?")


def wanted_of(text: str | None) -> Wanted:
    """Return what ``--effect`` asks for.

    Raises:
        CommandRefused: It is no change.
    """
    found = _EFFECT.fullmatch((text or EFFECT).replace(" ", ""))
    amount = float(found["amount"]) if found is not None else 0.0
    if found is None or amount <= 0:
        raise CommandRefused(ExitCode.USAGE, f"--effect: {text!r} is no change", "For example 5%, 0.05 or 0.5pt.")
    wanted = Wanted(amount) if found["unit"] is None else Wanted(amount / 100, is_relative=found["unit"] == "%")
    if not MIN_AMOUNT <= wanted.amount <= MAX_AMOUNT:
        raise CommandRefused(
            ExitCode.USAGE, f"--effect: {text!r} is too small or too large a change", "For example 5%, 0.05 or 0.5pt."
        )
    return wanted
