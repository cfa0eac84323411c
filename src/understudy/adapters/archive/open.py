"""The archive that a URL names: a folder, or a bucket of S3."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from understudy import DISTRIBUTION
from understudy.adapters.archive.folder import FolderArchive
from understudy.errors import ArchiveUnavailable
from understudy.ports.prediction_log.archive_store import ArchiveStore

EXTRA_HINT = f"Install the extra that archives: pip install '{DISTRIBUTION}[archive]'."


def open_archive(url: str, *, endpoint: str | None, timeout_seconds: float) -> ArchiveStore:
    """Return the store of a URL; nothing is read or written before its first use.

    Args:
        url: ``s3://bucket/prefix``, ``file:///folder``, or the path of a folder.
        endpoint: Of S3, when it is not Amazon's.
        timeout_seconds: Longest time of one request to S3.

    Raises:
        ArchiveUnavailable: The URL cannot be used. Its user and password are not repeated.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return FolderArchive(Path(url).expanduser().resolve())
    if scheme == "file":
        return FolderArchive(Path(unquote(rest)))
    parts = urlsplit(url)
    if scheme != "s3" or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ArchiveUnavailable(
            "the archive's URL cannot be used",
            hint="Name s3://bucket/prefix, without credentials (they are in AWS_ACCESS_KEY_ID and so on), or a folder.",
        )
    with archive_extra():
        from understudy.adapters.archive.s3 import S3Archive  # noqa: PLC0415 - its library is an extra
    return S3Archive(parts.netloc, parts.path.strip("/"), endpoint=endpoint, timeout_seconds=timeout_seconds)


@contextmanager
def archive_extra() -> Iterator[None]:
    """Guard the import of modules that need the extra ``archive``.

    Raises:
        ArchiveUnavailable: They are not installed.
    """
    try:
        yield
    except ModuleNotFoundError as problem:
        raise ArchiveUnavailable(f"{problem.name} is not installed", hint=EXTRA_HINT) from None
