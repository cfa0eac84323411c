"""A team's own service over HTTP, whose requests and answers the version's ``backend`` describes."""

from understudy.adapters.model_servers.http.backend import HttpBackend, is_success, usable
from understudy.adapters.model_servers.server_backend import ServerApi
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.json_codec import json_columns, json_rows, json_text, read_json
from understudy.core.schema.json_mapping import parse_mapping
from understudy.core.schema.tensors import Block, Tensor
from understudy.errors import BadAnswer


class JsonServiceBackend(HttpBackend):
    """A version behind a service with a declared JSON mapping: see :mod:`understudy.core.schema.json_mapping`.

    Without ``[*]`` in ``inputs`` a call has one row; with ``batch`` in the schema its answer then gets a leading
    dimension. Without a ``ready_path`` a service counts as ready that answers a GET of ``path``, such as by 405.
    """

    def _api(self, version: ModelVersion) -> ServerApi:
        self._mapping = usable(
            lambda: parse_mapping(version.backend, tensors=len(self._inputs), batch=bool(self._batch))
        )
        if not self._mapping.takes_rows:
            self.rows_per_call = 1
        ready = self._mapping.ready_path
        says_ready = _lives if ready is None else is_success
        return self._http_api(version, self._mapping.path, ready or self._mapping.path, says_ready)

    async def infer_block(self, block: Block, timeout_seconds: float) -> Tensor:
        """See the port."""
        if self.rows_per_call is not None:
            raise BadAnswer("the service takes one row a call, and no block of them: backend.inputs has no [*]")
        return await super().infer_block(block, timeout_seconds)

    def _encode(self, block: Block) -> bytes:
        columns = json_columns(self._inputs, block)
        rows = json_rows(columns) if self._batch else [tuple(columns.values())]
        if len(rows) != 1 and not self._mapping.takes_rows:
            msg = f"{len(rows)} rows for a service that takes 1 a call"
            raise ValueError(msg)
        return json_text(self._mapping.request(tuple(columns), rows))

    def _decode(self, answer: bytes) -> Tensor:
        tensor = self._tensor(self._mapping.output_of(read_json(answer)))
        if self._batch and not self._mapping.takes_rows:
            return tensor.reshaped((1, *tensor.shape))
        return tensor


def _lives(answer: bytes) -> bool:
    return not answer.startswith(b"5")
