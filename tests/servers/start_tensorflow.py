# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in TensorFlow's venv: a SavedModel behind the official TensorFlow Serving stubs.

    python start_tensorflow.py <folder> <gRPC port>

TensorFlow Serving's own binary is in no package index; its protobuf code and services are. TensorFlow itself reads and
writes every tensor here, so nothing on this side is ours.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import tensorflow as tf
from saved_model import save
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

folder, port = Path(sys.argv[1]), sys.argv[2]


save(folder)
served = tf.saved_model.load(str(folder / "1"))


def checked(spec, context):
    """Refuse other models and versions with TensorFlow Serving's own codes."""
    if spec.name != "example" or (spec.HasField("version") and spec.version.value not in (0, 1)):
        context.abort(grpc.StatusCode.NOT_FOUND, "Servable not found for request")


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """``Predict`` of the official service."""

    def Predict(self, request, context):  # noqa: N802  # the official name
        """Run the signature that the request names."""
        checked(request.model_spec, context)
        signature = served.signatures[request.model_spec.signature_name or "serving_default"]
        try:
            inputs = {name: tf.constant(tf.make_ndarray(tensor)) for name, tensor in request.inputs.items()}
            outputs = signature(**inputs)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        response = predict_pb2.PredictResponse()
        for name, value in outputs.items():
            if not request.output_filter or name in request.output_filter:
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return response


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """``GetModelStatus`` of the official service."""

    def GetModelStatus(self, request, context):  # noqa: N802  # the official name
        """Say that version 1 is there."""
        checked(request.model_spec, context)
        status = get_model_status_pb2.ModelVersionStatus(
            version=1, state=get_model_status_pb2.ModelVersionStatus.AVAILABLE
        )
        return get_model_status_pb2.GetModelStatusResponse(model_version_status=[status])


server = grpc.server(ThreadPoolExecutor(4))
prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(), server)
model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(), server)
if server.add_insecure_port(f"127.0.0.1:{port}") == 0:
    sys.exit(f"port {port} is taken")
server.start()
server.wait_for_termination()
