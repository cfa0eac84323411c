"""Model servers over gRPC: Open Inference Protocol, TensorFlow Serving, TorchServe, and their replicas."""
