"""The development model server: example ONNX models over gRPC."""
