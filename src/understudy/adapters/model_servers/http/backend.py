"""What the backends over HTTP share: JSON in and out, paths of requests, and a probe that is a GET."""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from understudy.adapters.model_servers.encoding import LISTED_BYTES
from understudy.adapters.model_servers.http.channel import STATUS_DIGITS, open_http
from understudy.adapters.model_servers.replicas.attempts import USUAL_TRAITS
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.adapters.model_servers.server_backend import ServerApi, ServerBackend
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.json_codec import tensor_of_json
from understudy.core.schema.json_mapping import require_url_path
from understudy.core.schema.tensors import Row, Tensor, block_of_rows
from understudy.errors import BackendUnavailable


class HttpBackend(ServerBackend):
    """A version behind a model server that is called over HTTP/1.1, with JSON.

    ``backend`` setting of all: ``path_prefix``, which stands before the protocol's own paths, as behind an ingress.
    """

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        """See the port; many rows, whose JSON takes milliseconds to write, are encoded as a block is: in a thread."""
        return await super().infer_block(block_of_rows(self._inputs, rows, batch=self._batch), timeout_seconds)

    def _http_api(self, version: ModelVersion, path: str, probe: str, says_ready: Callable[[bytes], bool]) -> ServerApi:
        """Return how the server is called at these paths."""
        self._wanted = version.output_schema.datatype
        prefix = usable(lambda: require_url_path("path_prefix", version.backend.get("path_prefix", "/"))).rstrip("/")
        return ServerApi(
            f"POST {prefix}{path}",
            Probe(f"GET {prefix}{probe}", b"", says_ready),
            inline_bytes=LISTED_BYTES,
            traits=USUAL_TRAITS,
            open_channel=open_http,
        )

    def _tensor(self, value: Any, name: str = "") -> Tensor:
        """Return the output from its JSON, as the datatype that the version's ``output_schema`` says."""
        return tensor_of_json(value, self._wanted, None, name)


def usable(read: Callable[[], Any]) -> Any:
    """Return what ``read`` makes of a setting; one that cannot be used is said at each call.

    Raises:
        BackendUnavailable: ``read`` raised ``ValueError``.
    """
    try:
        return read()
    except ValueError as problem:
        raise BackendUnavailable(str(problem)) from None


def url_part(name: str) -> str:
    """Return a name as one segment of a path.

    Raises:
        BackendUnavailable: It would be none, or lead out of the path.
    """
    if name in ("", ".", ".."):
        raise BackendUnavailable(f"{name!r} cannot be a part of the path of a URL")
    return quote(name, safe="")


def is_success(answer: bytes) -> bool:
    """Whether a probe's answer has a status of success."""
    return answer.startswith(b"2")


def said_by(answer: bytes) -> Any:
    """Return the document of a probe's answer that has a status of success, ``None`` for another one.

    Raises:
        ValueError: It is no JSON.
    """
    return orjson.loads(answer[STATUS_DIGITS:] or b"null") if is_success(answer) else None
