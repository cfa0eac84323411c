"""The gRPC methods that Understudy calls, as full paths, and the names of those that it offers."""

TFSERVING_PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
TFSERVING_MODEL_SERVICE = "tensorflow.serving.ModelService"
TFSERVING_PREDICT = f"/{TFSERVING_PREDICTION_SERVICE}/Predict"
TFSERVING_GET_MODEL_METADATA = f"/{TFSERVING_PREDICTION_SERVICE}/GetModelMetadata"
TFSERVING_GET_MODEL_STATUS = f"/{TFSERVING_MODEL_SERVICE}/GetModelStatus"
TFSERVING_RELOAD_CONFIG = f"/{TFSERVING_MODEL_SERVICE}/HandleReloadConfigRequest"
TFSERVING_SIGNATURE_TYPE_URL = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
"""Type of the ``Any`` in ``GetModelMetadataResponse.metadata["signature_def"]``."""

OIP_SERVICE = "inference.GRPCInferenceService"
OIP_SERVICE_OF_TORCHSERVE = "org.pytorch.serve.grpc.openinference.GRPCInferenceService"
OIP_MODEL_INFER = "ModelInfer"
OIP_MODEL_READY = "ModelReady"
OIP_MODEL_METADATA = "ModelMetadata"
OIP_SERVER_LIVE = "ServerLive"
OIP_SERVER_READY = "ServerReady"
OIP_SERVER_METADATA = "ServerMetadata"
OIP_MODEL_CONFIG = "ModelConfig"
OIP_MODEL_STATISTICS = "ModelStatistics"
OIP_REPOSITORY_INDEX = "RepositoryIndex"
OIP_REPOSITORY_LOAD = "RepositoryModelLoad"
OIP_REPOSITORY_UNLOAD = "RepositoryModelUnload"

HEALTH_SERVICE = "grpc.health.v1.Health"

TORCHSERVE_SERVICE = "org.pytorch.serve.grpc.inference.InferenceAPIsService"
TORCHSERVE_PREDICTIONS = f"/{TORCHSERVE_SERVICE}/Predictions"
TORCHSERVE_PING = f"/{TORCHSERVE_SERVICE}/Ping"


def oip_method(service_path: str, method: str) -> str:
    """Return a method of the Open Inference Protocol as gRPC's full path; TorchServe has another ``service_path``."""
    return f"/{service_path}/{method}"
