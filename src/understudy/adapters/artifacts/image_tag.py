"""``VersionSource`` over an OCI registry: a tag that moves from image to image."""

from threading import Event
from typing import Final

from understudy.adapters.artifacts.bounded_thread import in_bounded_thread
from understudy.adapters.artifacts.oci_origin import ACCEPT, OciOrigin
from understudy.adapters.artifacts.oci_registry import NotThere, OciAccess, OciRegistry
from understudy.adapters.artifacts.origin import Limits
from understudy.adapters.artifacts.patience import Passing
from understudy.adapters.artifacts.pin import Pinned, pin_artifact
from understudy.core.loading.image_tag import digits_of, image_of, said_version
from understudy.core.loading.oci_address import oci_address
from understudy.core.rollout.sources.version_source import STEPS, Offered, SourceSpec
from understudy.errors import ArtifactForbidden, ArtifactUnreachable, SourceAway

LOOK_SECONDS: Final = 30.0
"""Longest time of one look, with its token and its redirects."""


class ImageTag:
    """Follows one tag.

    It asks which digest the tag has, and for the manifest once that is another one: registries count manifests as
    pulls, and digests not.

    Args:
        spec: The address of the image, with its tag.
        access: Logins, and which registries need no TLS.
        limits: Bounds of an artifact, and of one look.
    """

    def __init__(self, spec: SourceSpec, access: OciAccess, limits: Limits) -> None:
        self._uri = spec.url
        self._address = oci_address(spec.url)
        # A look is one try: the next one comes by itself.
        self._access = access._replace(attempts=1, request_seconds=min(access.request_seconds, limits.seconds))
        self._limits = limits
        self._known: Offered | None = None

    async def offered(self) -> Offered | None:
        """Return the image that the tag names; raises ``ArtifactNotTaken`` where it is none that can be loaded."""
        try:
            digest = await in_bounded_thread(self._digest, self._limits.seconds)
            if self._known is None or self._known.note["digest"] != digest:
                origins = {"oci": OciOrigin(self._access)}
                self._known = _offered(self._uri, await pin_artifact(self._uri, None, origins, self._limits))
        except NotThere:
            return None
        except (ArtifactUnreachable, ArtifactForbidden) as problem:
            raise SourceAway(problem.detail) from None
        except OSError as problem:
            raise SourceAway(f"{self._uri} cannot be read: {problem}") from None
        return self._known

    async def described(self, offered: Offered) -> None:
        """Return nothing: what an image's tensors are, its cases and calls show once it is loaded."""

    async def close(self) -> None:
        """Do nothing: each look has its own connections."""

    def _digest(self, given_up: Event) -> str | None:
        """Return what the registry says that the tag's digest is; ``None``: ask for the manifest.

        Raises:
            NotThere: There is no such tag.
        """
        try:
            with (
                OciRegistry(self._address.registry, self._address.repository, self._access, given_up) as registry,
                registry.opened(f"manifests/{self._address.tag}", ACCEPT, "HEAD") as response,
            ):
                return response.headers.get("docker-content-digest")
        except NotThere:
            raise
        except (ArtifactUnreachable, Passing):
            return None


def _offered(uri: str, pinned: Pinned) -> Offered:
    address = image_of(pinned.uri)
    assert address is not None  # it was pinned
    assert address.digest is not None
    number = said_version(pinned.annotations, address.digest)
    digits = digits_of(address.digest)
    return Offered(
        number=number,
        artifact=pinned.uri,
        note={"image": f"{address.registry}/{address.repository}", "digest": address.digest},
        reason=f"oci: {uri} is {address.digest}",
        steps=pinned.annotations.get(STEPS),
        distinction=None if number == digits else digits,
    )
