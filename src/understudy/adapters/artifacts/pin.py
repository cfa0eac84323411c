"""Pins the artifact of a version that is being registered: reads what its address names now, and keeps nothing."""

from collections.abc import Mapping
from threading import Event
from typing import NamedTuple, Protocol

from understudy.adapters.artifacts.artifact_tree import ArtifactTree
from understudy.adapters.artifacts.bounded_thread import in_bounded_thread
from understudy.adapters.artifacts.origin import Limits, Origin
from understudy.core.loading.artifact_address import scheme_of
from understudy.errors import ArtifactDiffers, ArtifactUnreachable


class Pinned(NamedTuple):
    """What to register."""

    uri: str
    digest: str | None
    """``None``: the address itself names the content."""
    annotations: Mapping[str, str] = {}
    """What an image says of itself."""


class RemoteOrigin(Origin, Protocol):
    """An origin that is asked over the network, and so from a person's machine as from an agent's."""

    def pin(self, uri: str, tree: ArtifactTree) -> Pinned:
        """Return the address and digest of what a URI names now; ``tree`` writes nothing. Raises as ``copy``."""


async def pin_artifact(uri: str, expected: str | None, origins: Mapping[str, RemoteOrigin], limits: Limits) -> Pinned:
    """Return what to register for an artifact, with the digest of what lies there now, or of what is expected there.

    An address that no origin reads, such as a path on an agent's machine, is returned as it is.

    Raises:
        ArtifactDiffers: It has another digest than the expected one.
        ArtifactUnreachable, ArtifactForbidden, ArtifactNotTaken: It cannot be read.
    """
    origin = origins.get(scheme_of(uri))
    if origin is None:
        return Pinned(uri, expected)

    def work(given_up: Event) -> Pinned:
        return origin.pin(
            uri, ArtifactTree(uri, None, given_up, most_bytes=limits.most_bytes, most_files=limits.most_files)
        )

    try:
        pinned = await in_bounded_thread(work, limits.seconds)
    except (OSError, ValueError) as problem:
        raise ArtifactUnreachable(f"{uri} cannot be read: {problem}") from None
    if None not in (expected, pinned.digest) and pinned.digest != expected:
        raise ArtifactDiffers(f"{uri} is {pinned.digest}, not {expected}: not registered")
    return pinned._replace(digest=pinned.digest or expected)
