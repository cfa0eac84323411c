"""What carries calls to one replica, by gRPC's library, by our own client or over HTTP: the same few methods."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias, cast

import grpc
import grpc.aio

from understudy.adapters.model_servers.addresses import Metadata, Wire
from understudy.core.upstream.endpoint_rules import Address, Target, grpc_target

MAX_ANSWER_BYTES = 4 * 1_048_576

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # A connection of its own for each replica of each version (bulkhead): no shared back-off, no shared failure.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    # gRPC adds up to 20 % of jitter: 800 keeps the longest pause below a second.
    ("grpc.max_reconnect_backoff_ms", 800),
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    # That limit is looked at before an answer is decompressed and after it, and not meanwhile: 0.6 MB of gzip were
    # 629 MB of memory (measured). So none is decompressed, and no algorithm but identity is offered and taken.
    ("grpc.per_message_decompression", 0),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # With it gRPC reads ahead by what it thinks the link holds, and the process keeps much of that memory: 23 to 38 MB
    # after some answers of 5 MB that were refused, 3 MB without it (measured). Answers of up to 3 MB come as fast.
    ("grpc.http2.bdp_probe", 0),
    # A default server answers pings more often than every 5 minutes with GOAWAY too_many_pings. Setting an interval
    # also sets TCP_USER_TIMEOUT to the time-out below, which is what finds a peer that vanished silently.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Model servers are inside: neither a proxy from the environment nor a TXT record decides how they are called.
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
)


class Call(Protocol):
    """A call that has been sent, or is about to be: awaited once."""

    def __await__(self) -> Generator[Any, None, bytes]:
        """Return the answer; raises what the protocol has for a call that failed."""

    def cancel(self) -> bool:
        """End the call, whose awaiting then raises ``CancelledError``; ``False`` when it was answered already."""


class Send(Protocol):
    """Sends one kind of call."""

    def __call__(self, request: bytes, *, timeout: float, metadata: Metadata, wait_for_ready: bool = ...) -> Call:
        """Return the call; ``wait_for_ready``: for a connection, too, that cannot be made at the first attempt."""


class Channel(Protocol):
    """The connections to one replica."""

    @property
    def is_connected(self) -> bool:
        """Whether a call would leave at once."""

    def method(self, name: str) -> Send:
        """Return what sends calls of a method."""

    async def close(self, grace_seconds: float | None = None) -> None:
        """Close the connections; calls in flight may take the grace."""


OpenChannel: TypeAlias = Callable[[str, Target, Sequence[Address], Wire], Channel]
"""Opens the channel to an endpoint, whose addresses have been judged: no name is resolved again."""


class GrpcChannel:
    """A channel of ``grpc.aio``."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    @property
    def is_connected(self) -> bool:
        """Whether a call would leave at once; not so at a server that shuts down gracefully (it has sent GOAWAY)."""
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    def method(self, name: str) -> Send:
        """Return the callable of a method; bytes go in and out as they are."""
        return cast("Send", self._channel.unary_unary(name))

    async def close(self, grace_seconds: float | None = None) -> None:
        """See the port."""
        await self._channel.close(grace_seconds)


def open_grpcio(endpoint: str, target: Target, addresses: Sequence[Address], wire: Wire) -> Channel:
    """Return a channel of gRPC's library to an endpoint that speaks gRPC."""
    place = grpc_target(addresses, target.port)
    options = (*CHANNEL_OPTIONS, ("grpc.default_authority", endpoint))
    if wire.tls is None:
        return GrpcChannel(grpc.aio.insecure_channel(place, options=options))
    # The certificate must be for what the endpoint says, not for the address that it has today.
    named = (*options, ("grpc.ssl_target_name_override", target.host))
    credentials = grpc.ssl_channel_credentials(wire.tls.authorities)
    return GrpcChannel(grpc.aio.secure_channel(place, credentials, options=named))
