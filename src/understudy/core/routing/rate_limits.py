"""Rate limits of callers: token buckets for calls and bytes, as values."""

from typing import NamedTuple

BURST_SECONDS = 10.0
"""How much a caller that was quiet may use at once: what its rate gives in this time."""
ROW_BYTES = 512
"""What a call costs beside its body: its row in the log."""
UNSAID_BYTES = 65_536
"""What a body costs whose length was not said before it was sent."""
ANONYMOUS = "anonymous"


class Allowance(NamedTuple):
    """Rates of one caller; ``None``: no limit."""

    calls_per_second: float | None = None
    bytes_per_second: float | None = None
    """Of bodies and rows: what the log may grow by."""

    def or_else(self, usual: "Allowance") -> "Allowance":
        """Return these rates, with the usual ones where there are none."""
        return Allowance(
            usual.calls_per_second if self.calls_per_second is None else self.calls_per_second,
            usual.bytes_per_second if self.bytes_per_second is None else self.bytes_per_second,
        )

    def shared_by(self, workers: int) -> "Allowance":
        """Return the part that each of several processes hands out."""
        return Allowance(*(None if rate is None else rate / workers for rate in self))


NO_LIMIT = Allowance()


_ROUNDING = 1e-6


class TokenBucket(NamedTuple):
    """What is left of a rate.

    Who finds one whole token (a call, a byte) takes all that the call costs: a large one is not refused for ever, and
    what it took too much the next ones wait for.
    """

    tokens: float
    at: float
    """When it held so many, in seconds."""

    def take(self, cost: float, rate: float, now: float, *, needed: float | None = None) -> "tuple[TokenBucket, float]":
        """Return the bucket after a call, and how many seconds the call has to wait; 0: it may go on.

        Args:
            cost: What the call uses, in the rate's unit.
            rate: What flows in, in that unit a second, above 0.
            now: The clock, in seconds; when it went back nothing flows in.
            needed: What must be there; one token, or what a smaller call costs, unless said otherwise. Of the rest of a
                call that was let in already that is 0, so that only the debt of other calls stops it.
        """
        held = min(self.tokens + max(now - self.at, 0.0) * rate, most_of(rate))
        if needed is None:
            needed = min(cost, 1.0)
        if held >= needed - _ROUNDING:
            return TokenBucket(held - cost, now), 0.0
        return TokenBucket(held, now), (needed - held) / rate


def most_of(rate: float) -> float:
    """Return what a full bucket holds: never less than one call."""
    return max(rate * BURST_SECONDS, 1.0)


def call_bytes(content_length: int | None) -> int:
    """Return what a call costs of its caller's bytes."""
    return ROW_BYTES + (UNSAID_BYTES if content_length is None else content_length)
