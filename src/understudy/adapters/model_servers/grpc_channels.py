"""Which client calls an endpoint that speaks gRPC: our own or gRPC's library (ADR 126)."""

from collections.abc import Mapping, Sequence

from understudy.adapters.model_servers.addresses import GrpcClient, Wire
from understudy.adapters.model_servers.channels import Channel, OpenChannel, open_grpcio
from understudy.adapters.model_servers.http2.channel import open_http2
from understudy.core.upstream.endpoint_rules import Address, Target

_CLIENTS: Mapping[GrpcClient, OpenChannel] = {"asyncio": open_http2, "grpcio": open_grpcio}


def open_grpc(endpoint: str, target: Target, addresses: Sequence[Address], wire: Wire) -> Channel:
    """Return a channel to an endpoint that speaks gRPC, by the client that is asked for."""
    return _CLIENTS[wire.grpc_client](endpoint, target, addresses, wire)
