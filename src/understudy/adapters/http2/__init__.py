"""HTTP/2 for gRPC, what both its ends share: frames, header blocks, flow control, and what a peer may cost."""
