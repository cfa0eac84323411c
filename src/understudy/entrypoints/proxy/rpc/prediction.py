"""TensorFlow Serving's services: its calls, and what it says of models."""

from collections.abc import Mapping

from understudy.adapters._proto import understudy_tfserving_pb2 as pb
from understudy.core.requests.caller_request import refuse_inputs
from understudy.core.routing.access import Scope
from understudy.core.routing.policy import ModelVersion, ServingPolicy
from understudy.entrypoints.proxy.dialects.catalogue import named_version, not_retired
from understudy.entrypoints.proxy.dialects.dialect import Outcome
from understudy.entrypoints.proxy.dialects.kserve_v1 import status_document
from understudy.entrypoints.proxy.dialects.offered import Offered
from understudy.entrypoints.proxy.dialects.open_inference import metadata_document
from understudy.entrypoints.proxy.dialects.protobuf import INLINE_MESSAGE_BYTES
from understudy.entrypoints.proxy.dialects.tfserving_examples import ExamplesGrpc, Request
from understudy.entrypoints.proxy.dialects.tfserving_grpc import (
    TfServingGrpc,
    metadata_message,
    status_message,
    target_of,
)
from understudy.entrypoints.proxy.messages.headers import read_headers
from understudy.entrypoints.proxy.rpc.unary import Incoming, Method, message, not_offered

SIGNATURES = "signature_def"
NOT_OFFERED: Mapping[str, str] = {
    "MultiInference": "MultiInference: send the examples by Classify or Regress, or tensors by Predict"
}
"""Methods that clients know, and what to do in their place."""


class PredictionServices:
    """``tensorflow.serving.PredictionService`` and ``ModelService``.

    Args:
        offered: The open proxy.
    """

    def __init__(self, offered: Offered) -> None:
        self._offered = offered

    @property
    def prediction(self) -> tuple[Method, ...]:
        """The methods of the one."""
        return (
            Method("Predict", self._predict, is_of_model=True),
            Method("Classify", self._classify, is_of_model=True),
            Method("Regress", self._regress, is_of_model=True),
            Method("GetModelMetadata", self._metadata, max_bytes=INLINE_MESSAGE_BYTES),
            *(not_offered(name, what) for name, what in NOT_OFFERED.items()),
        )

    @property
    def model(self) -> tuple[Method, ...]:
        """The methods of the other."""
        reload = "models are loaded by the registry: understudy version load"
        status = Method("GetModelStatus", self._status, max_bytes=INLINE_MESSAGE_BYTES)
        return (status, not_offered("HandleReloadConfigRequest", reload))

    async def _predict(self, call: Incoming) -> Outcome:
        request, is_whole = call.begun(pb.PredictRequest, TfServingGrpc.HEAD)
        dialect = TfServingGrpc(request, is_whole=is_whole)
        return await self._offered.dialects.answer(dialect, call.http_call, target_of(request.model_spec))

    async def _classify(self, call: Incoming) -> Outcome:
        return await self._of_examples(call, pb.ClassificationRequest)

    async def _regress(self, call: Incoming) -> Outcome:
        return await self._of_examples(call, pb.RegressionRequest)

    async def _of_examples(self, call: Incoming, kind: type[Request]) -> Outcome:
        request, is_whole = call.begun(kind, ExamplesGrpc.HEAD)
        dialect = ExamplesGrpc(request, is_whole=is_whole)
        return await self._offered.dialects.answer(dialect, call.http_call, target_of(request.model_spec))

    async def _metadata(self, call: Incoming) -> Outcome:
        request = call.parsed(pb.GetModelMetadataRequest)
        policy, version = self._named(call, request.model_spec)
        if list(request.metadata_field) != [SIGNATURES]:
            raise refuse_inputs("/metadata_field", f"expected {SIGNATURES!r} alone")
        return message(metadata_message(metadata_document(policy, version, []), version))

    async def _status(self, call: Incoming) -> Outcome:
        spec = call.parsed(pb.GetModelStatusRequest).model_spec
        policy, version = self._named(call, spec)
        labels = [version.version] if target_of(spec).names_version else not_retired(policy)
        return message(status_message(status_document(policy, labels)))

    def _named(self, call: Incoming, spec: pb.ModelSpec) -> tuple[ServingPolicy, ModelVersion]:
        """Return the policy and the version that a call names, once its caller was admitted to the model."""
        self._offered.dialects.handler.access.admit(read_headers(dict(call.headers)), Scope.READ, spec.name)
        policy = self._offered.dialects.policy_of(spec.name, dict(call.headers))
        return policy, named_version(policy, target_of(spec))
