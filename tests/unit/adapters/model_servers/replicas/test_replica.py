"""One replica's channels: what closes them when its endpoint moves, and when its version goes."""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from understudy.adapters.model_servers.addresses import PLAIN_WIRE, Wire
from understudy.adapters.model_servers.channels import Send
from understudy.adapters.model_servers.replicas.replica import Replica
from understudy.core.upstream.endpoint_rules import Address, Target, parse_target
from understudy.errors import BackendUnavailable

ENDPOINT = "127.0.0.1:9000"


class KnownChannel:
    """A channel that tells whether it was closed."""

    is_connected = True

    def __init__(self) -> None:
        self.is_closed = False

    def method(self, name: str) -> Send:
        raise NotImplementedError(name)

    async def close(self, grace_seconds: float | None = None) -> None:
        if grace_seconds:
            await asyncio.sleep(grace_seconds)
        self.is_closed = True


def a_replica() -> tuple[Replica, list[KnownChannel]]:
    opened: list[KnownChannel] = []

    def open_channel(_endpoint: str, _target: Target, _addresses: Sequence[Address], _wire: Wire) -> KnownChannel:
        opened.append(KnownChannel())
        return opened[-1]

    return Replica(ENDPOINT, PLAIN_WIRE, asyncio.get_running_loop().time, open_channel), opened


async def test_the_channel_to_the_address_before_is_closed_though_the_version_goes_in_the_same_moment():
    replica, opened = a_replica()
    for address in ("127.0.0.1", "127.0.0.2"):
        replica._connect(parse_target(ENDPOINT), [ip_address(address)])  # noqa: SLF001 - as a name would resolve
    replica.is_closed = True

    await replica.close()

    assert [channel.is_closed for channel in opened] == [True, True]


async def test_a_call_that_comes_to_a_closed_replica_opens_no_channel():
    replica, opened = a_replica()
    replica.is_closed = True
    await replica.close()

    with pytest.raises(BackendUnavailable, match="closed"):
        await replica.open()

    assert opened == []
