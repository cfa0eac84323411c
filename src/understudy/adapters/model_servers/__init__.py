"""Model servers and their replicas; over gRPC the Open Inference Protocol, TensorFlow Serving and TorchServe."""
