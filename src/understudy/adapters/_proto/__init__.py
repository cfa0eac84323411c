"""Wire messages of the model servers' gRPC APIs; ``tools/make_protos.py`` makes the ``*_pb2`` files."""
