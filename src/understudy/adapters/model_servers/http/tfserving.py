"""TensorFlow Serving's REST API, ``/v1/models/{name}:predict``: TensorFlow Serving, and KServe's V1 protocol."""

from understudy.adapters.model_servers.http.backend import HttpBackend, said_by, url_part
from understudy.adapters.model_servers.server_backend import ServerApi
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.json_codec import json_columns, json_rows, json_text, member_of, read_json, rows_output
from understudy.core.schema.tensors import Block, Tensor
from understudy.errors import BackendUnavailable, BadAnswer

ROW_FORMAT = "row"
COLUMNAR_FORMAT = "columnar"


class TfServingHttpBackend(HttpBackend):
    """A version behind ``POST /v1/models/{name}:predict``.

    ``backend`` settings: ``signature_name``, ``version`` (a number; other text is a version label; none: the server
    chooses), ``format`` and ``path_prefix``. ``format`` is ``columnar`` (``inputs``) or ``row`` (``instances``,
    which is all that KServe's V1 protocol has).
    """

    def _api(self, version: ModelVersion) -> ServerApi:
        self._format = version.backend.get("format", COLUMNAR_FORMAT)
        if self._format not in (ROW_FORMAT, COLUMNAR_FORMAT):
            raise BackendUnavailable(f'backend.format must be "{COLUMNAR_FORMAT}" or "{ROW_FORMAT}"')
        if self._format == ROW_FORMAT and not self._batch:
            raise BackendUnavailable('backend.format "row" has rows, but input_schema.batch is false')
        signature = version.backend.get("signature_name")
        self._fixed = {} if signature is None else {"signature_name": str(signature)}
        path = f"/v1/models/{url_part(version.server_model_name)}{_version_part(version.server_version)}"
        return self._http_api(version, f"{path}:predict", path, _says_available)

    def _encode(self, block: Block) -> bytes:
        columns = json_columns(self._inputs, block)
        if self._format == COLUMNAR_FORMAT:
            return json_text({**self._fixed, "inputs": columns})
        rows = json_rows(columns)
        if len(columns) == 1:
            return json_text({**self._fixed, "instances": [row[0] for row in rows]})
        return json_text({**self._fixed, "instances": [dict(zip(columns, row, strict=True)) for row in rows]})

    def _decode(self, answer: bytes) -> Tensor:
        document = read_json(answer)
        key = "outputs" if self._format == COLUMNAR_FORMAT else "predictions"
        if not isinstance(document, dict) or key not in document:
            raise BadAnswer(f'the answer has no "{key}"')
        found = document[key]
        if isinstance(found, dict):
            return self._tensor(member_of(found, self._output), self._output or "")
        return self._tensor(rows_output(found, self._output), self._output or "")


def _version_part(version: str | None) -> str:
    if version is None or version == "0":
        return ""
    kind = "versions" if version.isdecimal() else "labels"
    return f"/{kind}/{url_part(version)}"


def _says_available(answer: bytes) -> bool:
    """Whether a version is available, as TensorFlow Serving says, or ready, as KServe does."""
    document = said_by(answer)
    if not isinstance(document, dict):
        return False
    states = document.get("model_version_status")
    if not isinstance(states, list):
        return document.get("ready") is True
    return any(isinstance(state, dict) and state.get("state") == "AVAILABLE" for state in states)
