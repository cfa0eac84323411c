"""Asks a model server for the tensors of a model, by the metadata call of its protocol."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from understudy.core.schema.described import DescribedModel


class ModelAt(NamedTuple):
    """A model at one server, before there is a version of it, as a version would be called there."""

    model_name: str
    protocol: str
    endpoint: str
    """``host:port``."""
    backend: Mapping[str, Any] = {}
    """As ``ModelVersion.backend``: the names at the server, TLS, the token."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoint, as the one of a version."""
        return (self.endpoint,)

    @property
    def server_model_name(self) -> str:
        """The model's name at its server."""
        return str(self.backend.get("model_name", self.model_name))

    @property
    def server_version(self) -> str | None:
        """The version's name at its server; ``None`` lets the server choose."""
        version = self.backend.get("version")
        return None if version is None else str(version)


class DescribeModel(Protocol):
    """One question to one server, with a deadline. Other protocols are other answers to the same question."""

    async def __call__(self, at: ModelAt) -> DescribedModel:
        """Return the tensors of a model; none where the protocol or the server tells of none.

        Raises:
            BackendUnavailable: The server is not reached, or may not be, or does not answer in time.
            BadAnswer: It answers that it has no such model, or the answer cannot be read; ``said`` has its words.
        """
