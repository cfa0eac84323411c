"""The gRPC port: calls of the Open Inference Protocol and TensorFlow Serving, and gRPC's own health checks."""
