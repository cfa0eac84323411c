"""Model servers over HTTP/1.1: the Open Inference Protocol, TensorFlow Serving, MLflow, a team's own services."""
