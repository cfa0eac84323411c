"""``POST /invocations`` and ``GET /ping``: MLflow's scoring server, and containers made for SageMaker."""

from understudy.adapters.model_servers.http.backend import HttpBackend, is_success
from understudy.adapters.model_servers.server_backend import ServerApi
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.json_codec import json_columns, json_rows, json_text, member_of, read_json, rows_output
from understudy.core.schema.tensors import Block, Tensor
from understudy.errors import BackendUnavailable, BadAnswer

FORMATS = ("dataframe_split", "dataframe_records", "inputs", "instances")


class InvocationsBackend(HttpBackend):
    """A version behind MLflow's scoring protocol, which has neither a model's name nor a version in its path.

    ``backend`` settings: ``format``, the key of the request (``dataframe_split``; ``dataframe_records``; ``inputs`` and
    ``instances`` for models with a tensor signature), and ``path_prefix``. Tensors are the columns of a data frame.
    """

    def _api(self, version: ModelVersion) -> ServerApi:
        self._format = version.backend.get("format", FORMATS[0])
        if self._format not in FORMATS:
            raise BackendUnavailable(f"backend.format must be one of {', '.join(FORMATS)}")
        if self._format != "inputs" and not self._batch:
            raise BackendUnavailable(f'backend.format "{self._format}" has rows, but input_schema.batch is false')
        return self._http_api(version, "/invocations", "/ping", is_success)

    def _encode(self, block: Block) -> bytes:
        columns = json_columns(self._inputs, block)
        if self._format == "inputs":
            return json_text({"inputs": next(iter(columns.values())) if len(columns) == 1 else columns})
        rows = json_rows(columns)
        if self._format == "dataframe_split":
            return json_text({"dataframe_split": {"columns": list(columns), "data": rows}})
        if self._format == "instances" and len(columns) == 1:
            return json_text({"instances": [row[0] for row in rows]})
        return json_text({self._format: [dict(zip(columns, row, strict=True)) for row in rows]})

    def _decode(self, answer: bytes) -> Tensor:
        document = read_json(answer)
        # MLflow answers an object, containers for SageMaker often a bare list.
        if isinstance(document, dict):
            if "predictions" not in document:
                raise BadAnswer('the answer has no "predictions"')
            document = document["predictions"]
        if isinstance(document, dict):
            document = member_of(document, self._output)
        return self._tensor(rows_output(document, self._output), self._output or "")
