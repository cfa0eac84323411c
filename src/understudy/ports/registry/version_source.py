"""A model registry that is followed: which version a label names now, and what that version says of itself."""

from typing import Protocol

from understudy.core.rollout.sources.version_source import Offered
from understudy.core.schema.described import DescribedModel


class VersionSource(Protocol):
    """One label of one model in one registry.

    Every method raises ``SourceAway`` where the registry does not answer in time, or refuses the login, or says what
    cannot be read.
    """

    async def offered(self) -> Offered | None:
        """Return the version that the label names; ``None``: there is no such label."""

    async def described(self, offered: Offered) -> DescribedModel:
        """Return the inputs and outputs of a version.

        Raises:
            SchemaNotTold: It does not say them.
        """

    async def close(self) -> None:
        """Close the connections."""
