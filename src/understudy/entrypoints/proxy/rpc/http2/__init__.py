"""The HTTP/2 server of the gRPC port: connections, calls on their streams, and their end without a lost call."""
