"""Bounds of a process: connections, descriptors, memory and lag, bytes of bodies; for HTTP, gRPC and the console."""
