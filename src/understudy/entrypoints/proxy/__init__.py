"""The data plane over HTTP."""
