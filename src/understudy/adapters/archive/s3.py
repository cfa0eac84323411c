"""``ArchiveStore`` in a bucket of S3, or of a server with its protocol. Needs the extra ``archive``."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from understudy.core.prediction_log.archive_plan import archive_key
from understudy.errors import ArchiveUnavailable

_CHUNK_BYTES = 8 * 1_048_576
_DELETED_AT_ONCE = 500
_RETRY_SECONDS = 60


class S3Archive:
    """Objects of one bucket below a prefix.

    Credentials and region are the environment's (``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_REGION``, or
    the role of the machine); they are in no URL, no message and no table.

    Args:
        bucket: Its name.
        prefix: Of every key, without slashes at its ends; empty for the whole bucket.
        endpoint: Another server than Amazon's, such as ``http://minio:9000``.
        timeout_seconds: Longest time of one request.
    """

    def __init__(self, bucket: str, prefix: str, *, endpoint: str | None, timeout_seconds: float) -> None:
        self.location = f"s3://{bucket}/{prefix}".rstrip("/")
        seconds = timedelta(seconds=timeout_seconds)
        try:
            self._store = S3Store(
                bucket,
                prefix=prefix or None,
                config={} if endpoint is None else {"endpoint": endpoint},
                client_options={
                    "timeout": seconds,
                    "connect_timeout": timedelta(seconds=5),
                    "allow_http": endpoint is not None and endpoint.startswith("http://"),
                },
                retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
            )
        except BaseError as problem:
            raise self._unavailable(problem) from None

    @property
    def local_root(self) -> Path | None:
        return None

    async def put(self, key: str, source: Path) -> None:
        try:
            await obstore.put_async(self._store, archive_key(key), source, chunk_size=_CHUNK_BYTES)
        except (BaseError, OSError) as problem:
            raise self._unavailable(problem) from None

    async def fetch(self, key: str, target: Path) -> bool:
        try:
            found = await obstore.get_async(self._store, archive_key(key))
            with target.open("wb") as file:
                async for piece in found.stream(min_chunk_size=_CHUNK_BYTES):
                    file.write(piece)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as problem:
            raise self._unavailable(problem) from None
        return True

    async def delete(self, keys: Iterable[str]) -> None:
        waiting = [archive_key(key) for key in keys]
        try:
            while waiting:
                some, waiting = waiting[:_DELETED_AT_ONCE], waiting[_DELETED_AT_ONCE:]
                await obstore.delete_async(self._store, some)
        except FileNotFoundError:
            pass
        except (BaseError, OSError) as problem:
            raise self._unavailable(problem) from None

    async def keys(self) -> Sequence[str]:
        try:
            return sorted([found["path"] async for some in obstore.list(self._store) for found in some])
        except (BaseError, OSError) as problem:
            raise self._unavailable(problem) from None

    def _unavailable(self, problem: Exception) -> ArchiveUnavailable:
        # The library's text has headers and the whole request; its first line has the error.
        said = str(problem).strip().splitlines() or [type(problem).__name__]
        return ArchiveUnavailable(f"{self.location}: {said[0][:300]}")
