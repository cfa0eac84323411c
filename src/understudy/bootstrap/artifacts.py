"""Where artifacts are read from, by settings: for an agent, and for the command that registers a version."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from understudy import DISTRIBUTION
from understudy.adapters.artifacts.folder_origin import FolderOrigin
from understudy.adapters.artifacts.origin import Limits, Origin
from understudy.adapters.artifacts.permitted_origin import PermittedOrigin
from understudy.adapters.artifacts.pin import Pinned, RemoteOrigin, pin_artifact
from understudy.core.loading.artifact_address import parse_stores, scheme_of
from understudy.core.loading.oci_address import parse_logins, parse_registries
from understudy.errors import ArtifactUnreachable
from understudy.settings import Settings

if TYPE_CHECKING:
    from understudy.adapters.artifacts.oci_registry import OciAccess


def origins_of(settings: Settings) -> Mapping[str, Origin]:
    """Return what an agent reads artifacts from, by the scheme of their addresses."""
    stores = parse_stores(settings.artifact_stores or "")
    origins: dict[str, Origin] = {}
    if settings.artifact_root is not None:
        folder = FolderOrigin(settings.artifact_root)
        origins |= {"": folder, "file": folder}
    for scheme, open_origin in _remote(settings).items():
        if any(store.startswith(f"{scheme}:") for store in stores):
            origins[scheme] = PermittedOrigin(open_origin, stores)
    return origins


def limits_of(settings: Settings) -> Limits:
    """Return the bounds of one artifact."""
    return Limits(most_bytes=settings.artifact_bytes, seconds=settings.artifact_seconds)


async def pinned_artifact(settings: Settings, uri: str, expected: str | None) -> Pinned:
    """Return what to register for an artifact; raises as :func:`understudy.adapters.artifacts.pin.pin_artifact`.

    The person who registers chooses the store, and shows a login of their own.
    """
    open_origin = _remote(settings).get(scheme_of(uri))
    origins = {} if open_origin is None else {scheme_of(uri): open_origin()}
    return await pin_artifact(uri, expected, origins, limits_of(settings))


def _remote(settings: Settings) -> Mapping[str, Callable[[], RemoteOrigin]]:
    """Return what opens the origin of each scheme of a store."""
    return {"s3": lambda: _objects(settings), "oci": lambda: _images(settings)}


def image_access(settings: Settings) -> "OciAccess":
    """Return what an operator has given for registries of images."""
    from understudy.adapters.artifacts.oci_registry import OciAccess  # noqa: PLC0415 - its HTTP client takes a while

    logins = {} if settings.oci_logins is None else parse_logins(settings.oci_logins.get_secret_value())
    return OciAccess(logins, parse_registries(settings.oci_plain_http or ""))


def _images(settings: Settings) -> RemoteOrigin:
    from understudy.adapters.artifacts.oci_origin import OciOrigin  # noqa: PLC0415 - its HTTP client takes a while

    return OciOrigin(image_access(settings))


def _objects(settings: Settings) -> RemoteOrigin:
    try:
        from understudy.adapters.artifacts.object_origin import ObjectOrigin  # noqa: PLC0415 - its library is an extra
    except ModuleNotFoundError as problem:
        raise ArtifactUnreachable(
            f"{problem.name} is not installed",
            hint=f"Install the extra that reads buckets: pip install '{DISTRIBUTION}[archive]'.",
        ) from None
    return ObjectOrigin(settings.artifact_endpoint, settings.artifact_region)
