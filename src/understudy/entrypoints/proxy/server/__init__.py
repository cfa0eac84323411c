"""HTTP/1.1 connections on top of uvicorn: read timeouts, slow readers, graceful shutdown."""
