"""A registry that is followed: which version a label names now, and what that version says of itself."""

from typing import Protocol

from understudy.core.rollout.sources.version_source import Offered
from understudy.core.schema.described import DescribedModel


class VersionSource(Protocol):
    """One label in one registry.

    Every method raises ``SourceAway`` where the registry does not answer in time, or refuses the login, or says what
    cannot be read.
    """

    async def offered(self) -> Offered | None:
        """Return the version that the label names; ``None``: there is no such label.

        Raises:
            ArtifactNotTaken: It names what is no version.
        """

    async def described(self, offered: Offered) -> DescribedModel | None:
        """Return the inputs and outputs of a version; ``None``: its kind of registry never says them.

        Raises:
            SchemaNotTold: It does not say them.
        """

    async def close(self) -> None:
        """Close the connections."""
