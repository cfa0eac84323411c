"""A channel of our own client to a server that sends what a test says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loopback.http2_server import RawServer, Script, scripted

from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.http2.channel import Http2Channel, open_http2
from understudy.core.upstream.endpoint_rules import parse_target


@asynccontextmanager
async def connected(*scripts: Script) -> AsyncIterator[tuple[Http2Channel, RawServer]]:
    """A connection that the scripts answer, one after the other, and the server."""
    async with scripted(*scripts) as server:
        target = parse_target(f"127.0.0.1:{server.port}")
        assert target.literal is not None
        channel = open_http2(f"127.0.0.1:{server.port}", target, [target.literal], PLAIN_WIRE)
        try:
            yield channel, server
        finally:
            await channel.close()
