"""``Origin`` of objects in buckets of S3, or of a server with its protocol. Needs the extra ``archive``.

Credentials are the environment's (``AWS_ACCESS_KEY_ID`` and so on, or the role of the machine): they are in no address,
no message and no table. The library's own texts hold whole requests and answers, so none of them is repeated.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import obstore
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import S3Store

from understudy.adapters.artifacts.artifact_tree import BLOCK_BYTES, ArtifactTree
from understudy.adapters.artifacts.patience import FIRST_PAUSE_SECONDS, Passing, Patience
from understudy.adapters.artifacts.pin import Pinned
from understudy.core.loading.artifact_address import object_address
from understudy.errors import ArtifactDiffers, ArtifactForbidden, ArtifactNotTaken, ArtifactUnreachable

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig, S3Config

RANGE_BYTES: Final = 8 * BLOCK_BYTES
REQUEST_SECONDS: Final = 60.0
"""Longest time of one request, which brings at most a range."""
_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_OF_MACHINE: Final = re.compile(r"/latest/(api/token|meta-data)|/v2/credentials|AssumeRole")
"""Requests for credentials of the machine, which the library makes where the environment has none."""
_NO_PATH: Final = re.compile(r"rror parsing Path|empty path segment|illegal character sequence", re.IGNORECASE)
T = TypeVar("T")


class _Object(NamedTuple):
    key: str
    size: int
    e_tag: str
    """By which it is the same object to its end."""


class ObjectOrigin:
    """A :class:`understudy.adapters.artifacts.pin.RemoteOrigin` of ``s3://bucket/key``, or ``s3://bucket/prefix``.

    Args:
        endpoint: Another server than Amazon's, such as ``http://minio:9000``.
        region: Of the buckets; without it the environment says which.
        request_seconds: Longest time of one request.
        first_pause_seconds: Before the second attempt of a request.
    """

    def __init__(
        self,
        endpoint: str | None,
        region: str | None,
        *,
        request_seconds: float = REQUEST_SECONDS,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        self._endpoint = endpoint
        self._region = region
        self._seconds = timedelta(seconds=request_seconds)
        self._pause = first_pause_seconds

    def copy(self, uri: str, tree: ArtifactTree) -> str:
        try:
            bucket, key, is_prefix = object_address(uri)
        except ValueError as problem:
            raise ArtifactUnreachable(f"the artifact's address cannot be used: {problem}") from None
        reader = _Reader(self._store(bucket), uri, tree, Patience(tree.given_up, self._pause))
        single = None if is_prefix else reader.find(key)
        if single is not None:
            tree.expect_bytes(single.size)
            tree.add(key.rpartition("/")[2], reader.blocks(single))
            return tree.file_digest()
        for found in reader.below(key):
            tree.add(found.key[len(key) + 1 if key else 0 :], reader.blocks(found))
        return tree.digest()

    def pin(self, uri: str, tree: ArtifactTree) -> Pinned:
        return Pinned(uri, self.copy(uri, tree))

    def _store(self, bucket: str) -> S3Store:
        config: S3Config = {}
        if self._endpoint is not None:
            config["endpoint"] = self._endpoint
        if self._region is not None:
            config["region"] = self._region
        options: ClientConfig = {
            "timeout": self._seconds,
            "connect_timeout": min(self._seconds, timedelta(seconds=5)),
            "allow_http": self._endpoint is not None and self._endpoint.startswith("http://"),
        }
        retries: RetryConfig = {"max_retries": 0}  # Patience counts them, and ends when the fetch does
        try:
            return S3Store(bucket, config=config, client_options=options, retry_config=retries)
        except BaseError:
            raise ArtifactUnreachable(f"s3://{bucket} cannot be used with the settings in AWS_*") from None


class _Reader:
    """Reads one artifact from its bucket."""

    def __init__(self, store: S3Store, uri: str, tree: ArtifactTree, patience: Patience) -> None:
        self._store = store
        self._uri = uri
        self._tree = tree
        self._patience = patience

    def find(self, key: str) -> _Object | None:
        """Return the object of a key; ``None``: there is none."""

        def head() -> _Object | None:
            try:
                found = obstore.head(self._store, key)
            except FileNotFoundError:
                return None
            return self._object(found)

        return self._patiently(head)

    def below(self, prefix: str) -> Sequence[_Object]:
        """Return the objects below a prefix by their keys; those that only stand for a folder are left out."""

        def listed() -> list[_Object]:
            objects: list[_Object] = []
            size = 0
            for some in obstore.list(self._store, prefix=prefix or None):
                objects += [self._object(found) for found in some]
                size += sum(found["size"] for found in some)
                self._tree.expect_files(len(objects))
                self._tree.expect_bytes(size)
            return objects

        objects = self._patiently(listed)
        for found in objects:
            if prefix and not found.key.startswith(f"{prefix}/") and (found.size or found.key != prefix):
                raise ArtifactNotTaken(f"{self._uri}: the store lists {found.key[:200]!r}, which is not below it")
        return sorted(found for found in objects if found.size or (found.key != prefix and self._is_file(found.key)))

    def _is_file(self, key: str) -> bool:
        """Whether an empty object has this key, and not with a slash behind it, as what stands for a folder has.

        The library leaves that slash out of its lists.
        """
        return self.find(key) is not None

    def _object(self, found: "ObjectMeta") -> _Object:
        if found["e_tag"] is None:
            raise ArtifactUnreachable(f"{self._uri}: the store gives no ETag of {found['path'][:200]!r}")
        return _Object(found["path"], found["size"], found["e_tag"])

    def blocks(self, found: _Object) -> Iterator[bytes]:
        """Read an object in ranges; after a break, from where it broke. It is the same object to its end."""
        at = 0
        while at < found.size:
            try:
                for block in self._range(found, at):
                    at += len(block)
                    self._patience.renew()
                    yield block
            except FileNotFoundError:
                raise ArtifactUnreachable(f"{self._uri} has lost {found.key} while it was copied") from None
            except PreconditionError:
                raise ArtifactUnreachable(f"{self._uri}: {found.key} was changed while it was copied") from None
            except BaseError as problem:
                self._patience.wait(self._passing(problem), self._uri)

    def _range(self, found: _Object, start: int) -> Iterator[bytes]:
        end = min(start + RANGE_BYTES, found.size)
        options: GetOptions = {"range": (start, end), "if_match": found.e_tag}
        answer = obstore.get(self._store, found.key, options=options)
        if answer.meta["e_tag"] != found.e_tag:  # a server may not know if_match
            raise ArtifactUnreachable(f"{self._uri}: {found.key} was changed while it was copied")
        came = start
        for piece in answer.stream(min_chunk_size=BLOCK_BYTES):
            came += len(piece)
            if came > end:
                raise ArtifactDiffers(f"{self._uri}: the store sends more of {found.key} than it says that there is")
            yield bytes(piece)
        if came == start:
            raise BaseError("no byte came")

    def _patiently(self, work: Callable[[], T]) -> T:
        def in_words() -> T:
            try:
                return work()
            except BaseError as problem:
                raise self._passing(problem) from None

        return self._patience.retry(in_words, self._uri)

    def _passing(self, problem: BaseError) -> Passing:
        """Return a failure that may be over soon, in words without any of the library's.

        Raises:
            ArtifactForbidden, ArtifactNotTaken, ArtifactUnreachable: It will not be over by itself.
        """
        text = str(problem).partition("\n\nDebug source")[0]
        status, code = _STATUS.search(text), _CODE.search(text)
        answer = " ".join(found[1] for found in (status, code) if found)
        if _OF_MACHINE.search(text):
            raise ArtifactForbidden(
                f"{self._uri} wants a login: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and this machine"
                " has no role"
            )
        if answer.startswith(("401", "403")):
            raise ArtifactForbidden(f"{self._uri} may not be read or listed with this login: {answer}")
        if _NO_PATH.search(text):
            raise ArtifactNotTaken(f"{self._uri} has a key that is no path of a file, or is written as none")
        if status is None:
            return Passing("the store does not answer, or its answer breaks off")
        if status[1] in ("408", "429") or status[1] >= "500":
            return Passing(f"the store answers {answer}")
        raise ArtifactUnreachable(f"{self._uri} cannot be read: the store answers {answer}")
