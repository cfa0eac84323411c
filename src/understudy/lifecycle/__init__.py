"""The registry: versions, policies and their audit."""
