"""Port of tokens that another issuer made, accepted beside keys."""

from typing import Protocol

from understudy.core.routing.policy import ApiKey


class TokenReader(Protocol):
    """Says whose a token is; waits for nothing, so that a predict call can ask it."""

    def caller(self, token: str) -> ApiKey:
        """Return the bearer of a token, with its scopes and its end, as if it had shown a key.

        Raises:
            Unauthenticated: The token is not to be believed, in words of its own for each reason.
            TokenKeysAway: It cannot be told yet: the issuer's keys are not there.
        """
