"""What all backends share, over gRPC and over HTTP: a new kind of model server is its API, an encoder and a decoder."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

import structlog

from understudy.adapters.model_servers.addresses import PLAIN_WIRE, Wire
from understudy.adapters.model_servers.channels import OpenChannel
from understudy.adapters.model_servers.encoding import COPIED_BYTES, LISTED_BYTES, encoded, read_long
from understudy.adapters.model_servers.grpc_channels import open_grpc
from understudy.adapters.model_servers.replicas.attempts import USUAL_TRAITS, ServerTraits
from understudy.adapters.model_servers.replicas.hedged_call import NO_HEDGING, Hedging
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.adapters.model_servers.replicas.replica_set import ReplicaSet
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.tensors import Block, Row, Tensor, block_of_rows
from understudy.errors import BadAnswer

_log = structlog.get_logger(__name__)


class ServerApi(NamedTuple):
    """How a version's server is called."""

    method: str
    """What infers: the gRPC method, as ``/package.Service/Method``; over HTTP ``POST /path``."""
    probe: Probe
    prefix: bytes = b""
    """The part of a request that is the same for every call. Serialised messages that follow each other are one merged
    message, so it is made once."""
    inline_bytes: int = COPIED_BYTES
    """Contents up to this size are encoded on the event loop, longer ones in a thread."""
    traits: ServerTraits = USUAL_TRAITS
    open_channel: OpenChannel = open_grpc
    """How its replicas are connected to: by gRPC, or by HTTP."""


class ServerBackend(ABC):
    """A version behind one kind of model server: ``ModelBackend`` over a :class:`ReplicaSet`."""

    rows_per_call: int | None = None

    def __init__(self, version: ModelVersion, hedging: Hedging = NO_HEDGING, wire: Wire = PLAIN_WIRE) -> None:
        self._inputs = version.input_schema.tensors
        self._batch = version.input_schema.batch
        self._output = version.output_schema.tensor
        self._also = version.output_schema.also
        self._asked_outputs = [] if self._output is None else [self._output, *self._also]
        api = self._api(version)
        self._method = api.method
        self._prefix = api.prefix
        self._inline_bytes = api.inline_bytes
        self._reading = asyncio.Lock()
        self.replicas = ReplicaSet(
            version.endpoints,
            api.probe,
            traits=api.traits,
            usual_seconds=version.timeout_seconds,
            hedging=hedging,
            wire=wire,
            open_channel=api.open_channel,
        )

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to one of the replicas now."""
        return self.replicas.is_connected

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        message = self._encode(block_of_rows(self._inputs, rows, batch=self._batch))
        return await self._ask(message, timeout_seconds)

    async def infer_block(self, block: Block, timeout_seconds: float) -> Tensor:
        message, left_seconds = await encoded(self._encode, block, self._inline_bytes, timeout_seconds)
        return await self._ask(message, left_seconds)

    async def ready(self, timeout_seconds: float) -> bool:
        """Whether a replica's answer to the probe says that it serves the version."""
        return await self.replicas.ready(timeout_seconds)

    async def close(self) -> None:
        """Close the channels."""
        await self.replicas.close()

    async def _ask(self, message: bytes, timeout_seconds: float) -> Tensor:
        asked_at = monotonic()
        answer = await self.replicas.call(self._method, message, timeout_seconds)
        if len(answer) <= LISTED_BYTES:
            return self._read(answer)
        return await read_long(self._read, answer, self._reading, timeout_seconds - (monotonic() - asked_at))

    def _read(self, answer: bytes) -> Tensor:
        try:
            return self._decode(answer)
        except BadAnswer:
            raise
        except Exception as defect:
            # The decoder was not made for this answer. Whatever a server sends is an outcome of the call: 502, not 500.
            _log.exception("model_answer.not_read", method=self._method)
            raise BadAnswer("the answer cannot be read") from defect

    @abstractmethod
    def _api(self, version: ModelVersion) -> ServerApi:
        """Return how the version's server is called, from its ``backend`` settings.

        Called once, before any call: it may set what :meth:`_encode` and :meth:`_decode` need.
        """

    @abstractmethod
    def _encode(self, block: Block) -> bytes:
        """Return the request for a block of inputs, ``_prefix`` first."""

    @abstractmethod
    def _decode(self, answer: bytes) -> Tensor:
        """Return the tensor that the version's ``output_schema`` names; raises ``BadAnswer``.

        It runs in a thread if the answer is longer than ``LISTED_BYTES``.
        """
