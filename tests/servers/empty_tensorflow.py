# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in TensorFlow's venv: write artifacts, become a server of the official TensorFlow Serving stubs without models.

    python empty_tensorflow.py <folder> <gRPC port> <free port> [closed]

TensorFlow Serving's own binary is in no package index. Messages and services here are its own, TensorFlow loads each
model by the code that TensorFlow Serving has, and what becomes of a configuration is ``tfserving_core.py``'s.
``closed``: without the call that gives it a configuration.
"""

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import tensorflow as tf
from saved_model import save_artifacts
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tfserving_core import INVALID_ARGUMENT, OK, Core, Said

folder, port, is_closed = Path(sys.argv[1]), sys.argv[2], sys.argv[4:] == ["closed"]
save_artifacts(folder)
CODES = {code.value[0]: code for code in grpc.StatusCode}
native = ctypes.CDLL(str(Path(tf.__file__).parent / "libtensorflow_cc.so.2"))
for name in ("TF_NewSessionOptions", "TF_NewStatus", "TF_NewGraph", "TF_LoadSessionFromSavedModel"):
    getattr(native, name).restype = ctypes.c_void_p
native.TF_Message.restype = ctypes.c_char_p


def loaded(version: Path):
    """Return what serves a SavedModel, or fail with the words of TensorFlow's loader in C++."""
    status, session, graph = (
        ctypes.c_void_p(new()) for new in (native.TF_NewStatus, native.TF_NewSessionOptions, native.TF_NewGraph)
    )
    tags = (ctypes.c_char_p * 1)(b"serve")
    made = native.TF_LoadSessionFromSavedModel(session, None, str(version).encode(), tags, 1, graph, None, status)
    if not made:
        raise ValueError(native.TF_Message(status).decode(errors="replace"))
    native.TF_DeleteSession(ctypes.c_void_p(made), status)
    return tf.saved_model.load(str(version))


core = Core(loaded)


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """``Predict`` of the official service."""

    def Predict(self, request, context):  # noqa: N802  # the official name
        """Run the signature that the request names."""
        spec = request.model_spec
        served = core.served.get(spec.name)
        if served is None or (spec.HasField("version") and spec.version.value != 1):
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Specific({spec.name})")
        signature = served.signatures[spec.signature_name or "serving_default"]
        try:
            outputs = signature(
                **{name: tf.constant(tf.make_ndarray(tensor)) for name, tensor in request.inputs.items()}
            )
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return predict_pb2.PredictResponse(
            outputs={name: tf.make_tensor_proto(value) for name, value in outputs.items()}
        )


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """``GetModelStatus`` and ``HandleReloadConfigRequest`` of the official service."""

    def GetModelStatus(self, request, context):  # noqa: N802  # the official name
        """Say what has become of a model."""
        state = core.states.get(request.model_spec.name)
        if state is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Could not find any versions of model {request.model_spec.name}")
        status = get_model_status_pb2.ModelVersionStatus(version=1, state=state.state)
        status.status.error_code, status.status.error_message = state.said
        return get_model_status_pb2.GetModelStatusResponse(model_version_status=[status])

    def HandleReloadConfigRequest(self, request, context):  # noqa: N802  # the official name
        """Take a configuration."""
        if is_closed:
            return super().HandleReloadConfigRequest(request, context)
        said = Said(INVALID_ARGUMENT, "Only ModelConfigList is currently supported")
        models = request.config.model_config_list.config
        if not all(list(one.model_version_policy.specific.versions) == [1] for one in models):
            said = Said(INVALID_ARGUMENT, "of each model version 1 is asked for here")
        elif request.config.WhichOneof("config") == "model_config_list":
            said = core.reload({one.name: one.base_path for one in models if one.model_platform == "tensorflow"})
        if said.code != OK:
            context.abort(CODES[said.code], said.message)
        return model_management_pb2.ReloadConfigResponse()


server = grpc.server(ThreadPoolExecutor(16))
prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(), server)
model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(), server)
if server.add_insecure_port(f"127.0.0.1:{port}") == 0:
    sys.exit(f"port {port} is taken")
core.start()
server.start()
server.wait_for_termination()
