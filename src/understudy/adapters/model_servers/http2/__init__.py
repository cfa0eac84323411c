"""Unary gRPC calls over HTTP/2 (RFC 9113) in the event loop's own thread, behind the seam that gRPC's library has."""
