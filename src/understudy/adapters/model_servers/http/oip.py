"""The Open Inference Protocol over REST: MLServer, KServe, Triton, OpenVINO Model Server, and what else speaks it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from understudy.adapters.model_servers.answered_model import asked_model_of
from understudy.adapters.model_servers.http.backend import HttpBackend, is_success, said_by, url_part
from understudy.adapters.model_servers.oip import MAX_OUTPUTS, index_of_output
from understudy.adapters.model_servers.server_backend import ServerApi
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.codec import tensor_of_values
from understudy.core.schema.json_codec import json_of_content, json_text, read_json, tensor_of_json
from understudy.core.schema.tensors import DATATYPES, Block, Tensor
from understudy.errors import BadAnswer


class OipHttpBackend(HttpBackend):
    """A version behind ``POST /v2/models/{name}/infer``.

    ``backend`` settings: ``version``, ``answers_as`` (:func:`asked_model_of`) and ``path_prefix``. Tensors are lists
    in JSON; the binary tensor extension is not used.
    """

    def _api(self, version: ModelVersion) -> ServerApi:
        self._asked = asked_model_of(version, "")
        path = f"/v2/models/{url_part(version.server_model_name)}"
        if version.server_version is not None:
            path += f"/versions/{url_part(version.server_version)}"
        outputs = [{"name": name} for name in self._asked_outputs]
        self._asks_for = {"outputs": outputs} if outputs else {}
        return self._http_api(version, f"{path}/infer", f"{path}/ready", _says_ready)

    def _encode(self, block: Block) -> bytes:
        inputs = [
            {
                "name": spec.name,
                "shape": shape,
                "datatype": spec.datatype.wire_name,
                "data": json_of_content(spec.datatype, content, (-1,)),
            }
            for spec, content, shape in zip(self._inputs, *block, strict=True)
        ]
        return json_text({"inputs": inputs, **self._asks_for})

    def _decode(self, answer: bytes) -> Tensor:
        document = read_json(answer)
        outputs = document.get("outputs") if isinstance(document, dict) else None
        if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
            raise BadAnswer('the answer has no list "outputs", which the Open Inference Protocol has')
        if self._asked is not None:
            self._asked.require(str(document.get("model_name") or ""), str(document.get("model_version") or ""))
        if len(outputs) > MAX_OUTPUTS:
            raise BadAnswer(f"the answer has more than {MAX_OUTPUTS:,} outputs")
        names = [str(output.get("name", "")) for output in outputs]
        tensor = _tensor_of(outputs[index_of_output(self._output, names)])
        beside = tuple(_tensor_of(outputs[index_of_output(name, names)]) for name in self._also)
        return replace(tensor, beside=beside) if beside else tensor


def _tensor_of(output: Mapping[str, Any]) -> Tensor:
    datatype = DATATYPES.get(str(output.get("datatype")))
    shape = output.get("shape")
    if datatype is None:
        raise BadAnswer("the output's datatype is not supported")
    if not isinstance(shape, list) or not all(type(size) is int for size in shape) or "data" not in output:
        raise BadAnswer("the output has no shape, or no data in JSON")
    read = tensor_of_json(output["data"], datatype)
    return tensor_of_values(datatype, tuple(shape), read.values, str(output.get("name", "")))


def _says_ready(answer: bytes) -> bool:
    """Whether the model is ready: by the status, and where the body says so, too, by both."""
    if not is_success(answer):
        return False
    try:
        document = said_by(answer)
    except ValueError:
        return True  # Triton's and MLServer's answers have no document
    return not isinstance(document, dict) or document.get("ready", True) is True
