import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import run_in_virtual_time
from worlds.connection import KEEP_ALIVE_SECONDS, KINDS, PLAIN, PREDICT, UPGRADE, Peer

from understudy.entrypoints.proxy.server.request_state import State


@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=12),
    st.lists(st.integers(1, 400), min_size=1, max_size=30),
    st.booleans(),
)
def test_requests_are_answered_in_order_however_they_are_cut_into_reads(kinds, sizes, waits):
    bodies = [b"%02d" % number for number in range(len(kinds))]
    sent = b"".join(kind % body for kind, body in zip(kinds, bodies, strict=True))

    async def scenario() -> Peer:
        peer, start = Peer(), 0
        while start < len(sent):
            size = sizes[start % len(sizes)]
            peer.send(sent[start : start + size])
            start += size
            if waits:
                await peer.settle()
        await peer.settle()
        assert peer.transport.closed_at is None
        await asyncio.sleep(KEEP_ALIVE_SECONDS * 3)
        return peer

    peer = run_in_virtual_time(scenario())

    assert peer.transport.bodies == bodies
    assert peer.transport.closed_at == pytest.approx(KEEP_ALIVE_SECONDS, abs=0.1)  # nothing of a request is left open


FOLLOWERS = {
    State.IDLE: {State.HEAD},
    State.HEAD: {State.HOLDING, State.BODY, State.UPGRADE},
    State.HOLDING: {State.HELD, State.BODY},
    State.HELD: {State.HEAD, State.IDLE},
    State.BODY: {State.IDLE},
    State.UPGRADE: {State.HEAD},
}
"""All that a connection may do. To look each step up while it serves would cost 0.6 µs a request."""


def test_the_states_follow_each_other_as_the_table_says_and_every_way_is_taken():
    listed = {(state, follower) for state, followers in FOLLOWERS.items() for follower in followers}

    async def scenario() -> set[tuple[State, State]]:
        peer = Peer()
        peer.send(PREDICT.replace(b"host", b"connection: keep-alive\r\nhost") % b"aa")  # for the parser
        peer.send((PREDICT % b"bb") * 2 + (PLAIN % b"cc"))
        peer.send((UPGRADE % b"dd") + (PREDICT % b"ee")[:-1])
        await peer.settle()
        peer.send(b"e")
        await peer.settle()
        peer.send((PREDICT % b"ff")[:-1])
        return peer.connection.seen

    assert run_in_virtual_time(scenario()) == listed
