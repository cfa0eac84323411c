"""Our own client over HTTP/2 against a server on a raw socket: what RFC 9113 asks of it, frame by frame."""

import asyncio

import grpc
import grpc.aio
import pytest
from hpack import Decoder
from loopback.http2_server import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEAD,
    HEADERS,
    OK,
    PADDED,
    PING,
    PRIORITISED,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    frame,
    message_of,
    number,
    setting,
)
from worlds.http2 import connected

from understudy.adapters.model_servers.http2.channel import Http2Channel
from understudy.adapters.model_servers.http2.keepalive import Keepalive
from understudy.errors import BackendUnavailable

METHOD = "/test.Echo/Echo"
SECONDS = 20.0
HELLO = frame(SETTINGS)
MAX_STREAMS, INITIAL_WINDOW = 3, 4
CANCEL, REFUSED = 8, 7


async def ask(channel: Http2Channel, content: bytes = b"request", seconds: float = SECONDS) -> bytes:
    return await channel.method(METHOD)(content, timeout=seconds, metadata=(("Authorization", "Bearer t"),))


async def code_of(channel: Http2Channel, content: bytes = b"request", seconds: float = SECONDS) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await ask(channel, content, seconds)
    return failed.value.code().name, failed.value.details() or ""


async def echo(peer: Peer) -> None:
    peer.send(HELLO)
    while True:
        stream, content = await peer.call()
        peer.answer(stream, content)


async def test_a_call_tells_method_time_and_metadata_in_fields_that_any_decoder_reads():
    told: list[tuple[str, str]] = []

    async def reads(peer: Peer) -> None:
        peer.send(HELLO)
        fields = Decoder().decode((await peer.find(HEADERS)).payload)
        told.extend((str(name), str(value)) for name, value in fields)
        peer.answer(1, b"answer")

    async with connected(reads) as (channel, server):
        assert await ask(channel) == b"answer"

    fields = dict(told)
    assert (fields[":method"], fields[":path"]) == ("POST", METHOD)
    assert (fields[":authority"], fields[":scheme"]) == (f"127.0.0.1:{server.port}", "http")
    assert (fields["te"], fields["content-type"]) == ("trailers", "application/grpc")
    assert 0 < int(fields["grpc-timeout"].removesuffix("u")) <= SECONDS * 1e6
    assert fields["authorization"] == "Bearer t"


async def test_a_request_is_sent_as_the_servers_windows_and_settings_allow():
    sizes: list[int] = []

    async def gives_little(peer: Peer) -> None:
        peer.send(frame(SETTINGS, payload=setting(INITIAL_WINDOW, 1_000)))
        parts = b""
        for more in (b"", frame(WINDOW_UPDATE, 0, 1, number(500)), frame(SETTINGS, payload=setting(INITIAL_WINDOW, 0))):
            peer.send(more)
            if more and more[3] == SETTINGS:  # 1,000 less than before: the stream is in debt until there is more
                peer.send(frame(WINDOW_UPDATE, 0, 1, number(200_000)))
                break
            one = await peer.find(DATA)
            sizes.append(len(one.payload))
            parts += one.payload
        while len(parts) < 70_005:
            if len(parts) == 65_535:
                peer.send(frame(WINDOW_UPDATE, 0, 0, number(10_000)))
            one = await peer.find(DATA)
            parts += one.payload
        assert (one.flags & END_STREAM, parts[5:]) == (END_STREAM, content)
        peer.answer(1, b"whole")

    content = bytes(range(250)) * 280
    async with connected(gives_little) as (channel, _):
        assert await ask(channel, content) == b"whole"

    assert sizes == [1_000, 500]


async def test_a_socket_that_is_full_holds_requests_up_and_loses_none():
    """The server allows all of them at once, and reads late: the socket takes some of the first."""

    async def reads_late(peer: Peer) -> None:
        peer.send(
            frame(SETTINGS, payload=setting(INITIAL_WINDOW, 2**31 - 1)), frame(WINDOW_UPDATE, 0, 0, number(2**30))
        )
        parts: dict[int, bytearray] = {}
        for _ in range(4):
            stream, content = await peer.call(parts)
            peer.answer(stream, content[:1] + b"%d" % len(content))

    contents = [bytes([letter]) * 3_000_000 for letter in b"abcd"]
    async with connected(reads_late) as (channel, _):
        answers = await asyncio.gather(*(ask(channel, content) for content in contents))

    assert answers == [b"a3000000", b"b3000000", b"c3000000", b"d3000000"]


async def test_a_server_that_takes_one_call_at_a_time_gets_the_next_one_after_the_answer():
    async def one_at_a_time(peer: Peer) -> None:
        peer.send(frame(SETTINGS, payload=setting(MAX_STREAMS, 1)))
        for stream in (1, 3, 5):
            assert (await peer.call())[0] == stream
            peer.send(frame(PING, payload=b"anything"))
            await peer.find(PING, ack=True)  # so nothing was sent beside
            peer.answer(stream, b"%d" % stream)

    async with connected(one_at_a_time) as (channel, _):
        assert await asyncio.gather(*(ask(channel) for _ in range(3))) == [b"1", b"3", b"5"]


async def test_an_answer_may_be_padded_continued_and_in_tables():
    async def elaborate(peer: Peer) -> None:
        peer.send(HELLO)
        for _ in range(2):  # the second time the table says it all
            stream, content = await peer.call()
            information = frame(HEADERS, END_HEADERS, stream, peer.block(((":status", "103"),)))
            block = peer.block((*HEAD, ("x-long", "value " * 20)))
            first = frame(HEADERS, PADDED | PRIORITISED, stream, b"\3" + bytes(5) + block[:4] + bytes(3))
            rest = frame(CONTINUATION, 0, stream, block[4:9]) + frame(CONTINUATION, END_HEADERS, stream, block[9:])
            data = message_of(content)
            padded = frame(DATA, PADDED, stream, b"\x09" + data[:7] + bytes(9)) + frame(DATA, 0, stream, data[7:])
            peer.send(information, first, rest, padded, peer.trailers(stream))

    async with connected(elaborate) as (channel, _):
        assert await ask(channel, b"first call") == b"first call"
        assert await ask(channel, b"second call") == b"second call"


async def test_an_answer_of_three_megabytes_with_padding_comes_through_windows_that_are_kept():
    content = bytes(3_000_000)

    async def keeps_windows(peer: Peer) -> None:
        peer.send(HELLO)
        grown = int.from_bytes((await peer.find(WINDOW_UPDATE)).payload)
        stream, _ = await peer.call()
        windows = {0: 65_535 + grown, stream: 65_535}
        left = message_of(content)
        peer.send(peer.head(stream))
        while left:
            size = min(16_000, len(left), *(window - 101 for window in windows.values()))
            if size <= 0:
                one = await peer.find(WINDOW_UPDATE)
                windows[one.stream] += int.from_bytes(one.payload)
                continue
            part, left = left[:size], left[size:]
            peer.send(frame(DATA, PADDED, stream, bytes([100]) + part + bytes(100)))
            for of in windows:
                windows[of] -= len(part) + 101
        peer.send(peer.trailers(stream))

    async with connected(keeps_windows) as (channel, _):
        assert await ask(channel) == content


async def test_pings_and_settings_are_acknowledged():
    async def asks(peer: Peer) -> None:
        peer.send(HELLO)
        await peer.find(SETTINGS, ack=True)
        peer.send(frame(PING, payload=b"12345678"))
        assert (await peer.find(PING, ack=True)).payload == b"12345678"
        peer.send(frame(SETTINGS, payload=setting(INITIAL_WINDOW, 70_000)), frame(SETTINGS, ACK), frame(77, 3, 9))
        await peer.find(SETTINGS, ack=True)
        peer.answer(1, b"after it")

    async with connected(asks) as (channel, _):
        assert await ask(channel) == b"after it"


async def test_a_server_that_goes_away_ends_the_calls_that_it_took_and_gets_no_others():
    has_first = asyncio.Event()

    async def goes(peer: Peer) -> None:
        peer.send(HELLO)
        await peer.call()
        has_first.set()
        await peer.call()
        peer.send(frame(GOAWAY, payload=number(2**31 - 1) + number(0)))  # a graceful end is told twice
        peer.send(frame(GOAWAY, payload=number(1) + number(0)))
        peer.answer(1, b"by the first connection")
        await peer.find(GOAWAY)

    async with connected(goes, echo) as (channel, server):
        first = asyncio.ensure_future(ask(channel))
        await has_first.wait()
        second = await ask(channel, b"by the second connection")

        assert (await first, second) == (b"by the first connection", b"by the second connection")
        assert (server.connections, channel.is_connected) == (2, True)
        assert len(channel._connections()) == 1  # noqa: SLF001 - not shown: the first is not kept


async def test_a_refused_stream_is_asked_again_once():
    streams: list[int] = []

    async def refuses(peer: Peer) -> None:
        peer.send(HELLO)
        while True:
            stream, _ = await peer.call()
            streams.append(stream)
            peer.send(frame(RST_STREAM, 0, stream, number(REFUSED)))

    async with connected(refuses) as (channel, _):
        assert await code_of(channel) == ("UNAVAILABLE", "Received RST_STREAM with error code 7")

    assert streams == [1, 3]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_call_that_is_late_or_cancelled_resets_its_stream_and_what_still_comes_for_it_is_let_pass(
    is_cancelled: bool,  # noqa: FBT001 - a parameter
):
    has_come = asyncio.Event()

    async def is_slow(peer: Peer) -> None:
        peer.send(HELLO)
        peer.answer(*(await peer.call()))
        stream, _ = await peer.call()
        has_come.set()
        one = await peer.find(RST_STREAM)
        assert (one.stream, one.payload) == (stream, number(CANCEL))
        peer.answer(stream, b"too late")
        peer.send(frame(WINDOW_UPDATE, 0, stream, number(1)), frame(RST_STREAM, 0, stream, number(0)))
        peer.answer(*(await peer.call()))

    async with connected(is_slow) as (channel, server):
        await ask(channel, b"first")  # so that the next one leaves at once
        if is_cancelled:
            call = channel.method(METHOD)(b"x", timeout=SECONDS, metadata=())
            await has_come.wait()
            assert call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert not call.cancel()
        else:
            assert await code_of(channel, seconds=0.05) == ("DEADLINE_EXCEEDED", "Deadline Exceeded")
        assert await ask(channel, b"in time") == b"in time"
        assert server.connections == 1


async def test_a_server_that_answers_before_it_has_read_the_request_is_sent_no_more_of_it():
    async def hasty(peer: Peer) -> None:
        peer.send(frame(SETTINGS, payload=setting(INITIAL_WINDOW, 10)))
        await peer.find(DATA)
        peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, peer.block((*HEAD, ("grpc-status", "8")))))
        assert (await peer.find(RST_STREAM)).stream == 1

    async with connected(hasty) as (channel, _):
        assert (await code_of(channel, bytes(100)))[0] == "RESOURCE_EXHAUSTED"


async def test_a_server_whose_answers_are_all_late_keeps_its_connection():
    async def is_late(peer: Peer) -> None:
        peer.send(HELLO)
        while True:
            one = await peer.receive()
            if one.kind == RST_STREAM:
                peer.answer(one.stream, b"late")
            elif one.kind == DATA and one.payload[5:] == b"last":
                peer.answer(one.stream, b"in time")

    async with connected(is_late) as (channel, server):
        for _ in range(10):
            calls = [channel.method(METHOD)(b"x", timeout=SECONDS, metadata=()) for _ in range(50)]
            await channel.method(METHOD)(b"last", timeout=SECONDS, metadata=())
            assert all(call.cancel() for call in calls)
        assert await ask(channel, b"last") == b"in time"
        assert server.connections == 1


ENDS = {
    "a message in percent code": ((*HEAD, ("grpc-status", "5"), ("grpc-message", "Z%C3%BCrich 50%")), "NOT_FOUND",
                                  "Zürich 50%"),
    "a status that gRPC does not know": ((*HEAD, ("grpc-status", "99")), "UNKNOWN", ""),
    "a status that is no number": ((*HEAD, ("grpc-status", "²")), "UNKNOWN", ""),
    "no status": (HEAD, "UNKNOWN", "the answer has no gRPC status"),
    "HTTP 503": (((":status", "503"),), "UNAVAILABLE", "Received http2 header with status: 503"),
    "HTTP 404": (((":status", "404"),), "UNIMPLEMENTED", "Received http2 header with status: 404"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "code", "details"), ENDS.values(), ids=ENDS)
async def test_an_answer_without_a_message_means_what_its_status_says(
    fields: tuple[tuple[str, str], ...], code: str, details: str
):
    async def ends(peer: Peer) -> None:
        peer.send(HELLO)
        stream, _ = await peer.call()
        peer.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, peer.block(fields)))
        await peer.receive()

    async with connected(ends) as (channel, _):
        assert await code_of(channel) == (code, details)


MALFORMED = {
    "a message before its header": lambda peer: frame(DATA, 0, 1, message_of(b"x")),
    "a second header": lambda peer: peer.head(1) + peer.head(1),
    "a header without a status": lambda peer: frame(HEADERS, END_HEADERS, 1, peer.block(OK)),
    "an end without a status": lambda peer: peer.head(1) + frame(DATA, END_STREAM, 1, message_of(b"x")),
}


@pytest.mark.parametrize("frames", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_answer_costs_its_call_and_not_the_connection(frames):
    async def malforms(peer: Peer) -> None:
        peer.send(HELLO)
        await peer.call()
        peer.send(frames(peer))
        await echo(peer)

    async with connected(malforms) as (channel, server):
        assert (await code_of(channel))[0] == "INTERNAL"
        assert await ask(channel, b"next") == b"next"
        assert server.connections == 1


async def test_a_lost_connection_fails_what_was_sent_and_the_next_call_makes_another():
    async def leaves(peer: Peer) -> None:
        peer.send(frame(SETTINGS, payload=setting(MAX_STREAMS, 1)))
        await peer.call()

    async with connected(leaves, echo) as (channel, server):
        sent = asyncio.ensure_future(code_of(channel))
        unsent = asyncio.ensure_future(ask(channel, b"was never sent"))

        assert await sent == ("UNAVAILABLE", "the connection was closed")
        assert await unsent == b"was never sent"
        assert server.connections == 2


async def test_without_a_connection_calls_fail_at_once_but_those_that_wait_for_ready():
    async def refuses(_peer: Peer) -> None:
        return

    async with connected(refuses, refuses, echo) as (channel, server):
        waits = asyncio.ensure_future(patient(channel))
        code, details = await code_of(channel)

        assert (code, details.partition(";")[0]) == ("UNAVAILABLE", "failed to connect to all addresses")
        assert await waits == b"patient"
        assert server.connections == 3


async def patient(channel: Http2Channel) -> bytes:
    return await channel.method(METHOD)(b"patient", timeout=SECONDS, metadata=(), wait_for_ready=True)


async def test_a_closed_channel_ends_its_calls_and_takes_none():
    has_come = asyncio.Event()

    async def is_silent(peer: Peer) -> None:
        peer.send(HELLO)
        await peer.call()
        has_come.set()
        await peer.find(GOAWAY)

    async with connected(is_silent) as (channel, _):
        call = asyncio.ensure_future(ask(channel))
        await has_come.wait()
        await channel.close()

        with pytest.raises(BackendUnavailable):
            await call
        with pytest.raises(BackendUnavailable):
            await ask(channel)


async def test_a_channel_that_closes_with_a_grace_ends_with_its_last_answer():
    async with connected(echo) as (channel, _):
        await ask(channel)
        call = channel.method(METHOD)(b"last", timeout=SECONDS, metadata=())

        await channel.close(SECONDS)

        assert await call == b"last"


async def test_a_peer_that_answers_no_ping_is_given_up():
    async def is_silent(peer: Peer) -> None:
        peer.send(HELLO)
        await peer.find(PING)
        await asyncio.sleep(SECONDS)

    async with connected(is_silent) as (channel, _):
        channel.keepalive = Keepalive(asyncio.get_running_loop(), 0.02, 0.02)  # before its connection is made

        assert await code_of(channel) == ("UNAVAILABLE", "the peer does not answer a ping")
