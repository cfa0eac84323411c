"""Artifacts of versions: where they are read from, and the stage on local disk that they are loaded from."""
