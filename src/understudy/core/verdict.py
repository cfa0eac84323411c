"""What a canary analysis comes to."""

from enum import StrEnum


class Verdict(StrEnum):
    """The result of one look at a rollout.

    ``HOLD`` covers everything that is not decided yet, no traffic included; ``INVALID`` says that the two sides cannot
    be compared, because the traffic is not split as the policy says.
    """

    ADVANCE = "ADVANCE"
    HOLD = "HOLD"
    ROLL_BACK = "ROLL_BACK"
    INVALID = "INVALID"
