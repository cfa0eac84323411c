"""Callers of the load that ask in another server's protocol over REST: the native call is worded in it, its answer as a
native one, as :mod:`rigs.faults.grpc_caller` does over gRPC.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from e2e.load import Answer, Connection

from understudy.adapters.dev_server.example_models import example_version

_EXAMPLE = example_version("visits", 1)
(_TENSOR,) = _EXAMPLE.input_schema["tensors"]
_SCORE = _EXAMPLE.output_schema["score_index"]


class RestDialect(NamedTuple):
    """One protocol."""

    path: str
    worded: Callable[[str, Sequence[float]], Mapping[str, Any]]
    """Makes a body of whose call it is, and its one row."""
    row_of: Callable[[Any], Sequence[float]]
    """Takes the one row out of an answer."""


def _open_inference(entity: str, values: Sequence[float]) -> Mapping[str, Any]:
    tensor = {"name": _TENSOR["name"], "datatype": "FP32", "shape": [1, len(values)], "data": values}
    return {"inputs": [tensor], "parameters": {"entity_id": entity}}


REST_DIALECTS: Mapping[str, RestDialect] = {
    "oip": RestDialect("/v2/models/visits/infer", _open_inference, lambda answer: answer["outputs"][0]["data"]),
    "v1": RestDialect(
        "/v1/models/visits:predict",
        lambda entity, values: {"instances": [values], "entity_id": entity},
        lambda answer: answer["predictions"][0],
    ),
    "invocations": RestDialect(
        "/v1/models/visits/invocations",
        lambda entity, values: {
            "dataframe_split": {"columns": _TENSOR["features"], "data": [values]},
            "params": {"entity_id": entity},
        },
        lambda answer: answer["predictions"][0],
    ),
}


class RestConnection(Connection):
    """One keep-alive connection for calls in a protocol."""

    def __init__(self, dialect: RestDialect, host: str, port: int | Callable[[], int]) -> None:
        super().__init__(host, port)
        self._dialect = dialect

    async def post(self, _path: str, body: bytes, headers: str = "") -> Answer:
        """Ask, and return the answer as a native one."""
        document = orjson.loads(body)
        values = [document["inputs"][name] for name in _TENSOR["features"]]
        asked = orjson.dumps(self._dialect.worded(document["entity_id"], values))
        answer = await super().post(self._dialect.path, asked, headers)
        return answer if answer.status != 200 else answer._replace(body=self._native(answer))

    def _native(self, answer: Answer) -> bytes:
        row = self._dialect.row_of(orjson.loads(answer.body))
        version = answer.headers[b"x-model-version"].decode()
        return orjson.dumps({"version": version, "prediction": {"score": row[_SCORE]}})
