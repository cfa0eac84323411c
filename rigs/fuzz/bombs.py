"""Bombs: short bodies and messages that would be mebibytes, or have no end at all, once they are inflated."""

import asyncio
import zlib
from collections.abc import Sequence
from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rigs.fuzz.attack import Tally, send_cases
from rigs.fuzz.cases import Case
from rigs.fuzz.grpc_calls import send_grpc
from rigs.fuzz.grpc_messages import INFER, GrpcCase
from rigs.fuzz.models import VISITS
from understudy.adapters._proto import methods
from understudy.entrypoints.proxy.predict.handler import MAX_PARSING

AT_ONCE = 100
PATHS = (f"/v2/models/{VISITS}/infer", f"/v1/models/{VISITS}:predict", f"/v1/models/{VISITS}/invocations")
"""Of each dialect over HTTP."""
METHODS = (INFER, methods.TFSERVING_PREDICT)
TOO_LONG = frozenset({413})
GRPC_TOO_LONG = frozenset({"E103"})
CODINGS = ("gzip", "deflate")
MAX_CUT = 40
"""Bytes by which a bomb is cut short."""
_MIB = 1_048_576
_BOMB_MIB = (2, 16, 64, 256)
"""Inflated; each has fewer bytes than a body may."""
_PARTS = len(PATHS) + len(METHODS)


def bomb_cases(*, at_once: bool = False) -> SearchStrategy[Case]:
    """Draw bombs over HTTP.

    Each is too long, wherever it is cut: the limit is met before its end is. Where many come at once, one may
    also wait too long for the thread that inflates it, on a busy machine.
    """

    def case_of(target: str, body: bytes, coding: str) -> Case:
        expected = TOO_LONG | {503} if at_once else TOO_LONG
        return Case(target, body, expected, headers=b"content-encoding: %b\r\n" % coding.encode())

    return st.tuples(st.sampled_from(PATHS), _bombs()).map(lambda drawn: case_of(drawn[0], *drawn[1]))


def grpc_bomb_cases(*, at_once: bool = False) -> SearchStrategy[GrpcCase]:
    """Draw bombs over gRPC, as :func:`bomb_cases`."""

    def case_of(path: str, message: bytes, coding: str) -> GrpcCase:
        return GrpcCase(path, message, coding, GRPC_TOO_LONG | {"E507"} if at_once else GRPC_TOO_LONG)

    return st.tuples(st.sampled_from(METHODS), _bombs()).map(lambda drawn: case_of(drawn[0], *drawn[1]))


def _bombs() -> SearchStrategy[tuple[bytes, str]]:
    def made(mib: int, coding: str, less: int, times: int) -> tuple[bytes, str]:
        return (bomb(mib, coding) * times)[: -less or None], coding

    sizes, codings = st.sampled_from(_BOMB_MIB), st.sampled_from(CODINGS)
    return st.builds(made, sizes, codings, st.integers(0, MAX_CUT), st.integers(1, 3))


@cache
def bomb(mib: int, coding: str) -> bytes:
    """Return so many mebibytes of zeros, compressed by ``gzip`` or ``deflate``."""
    wbits = zlib.MAX_WBITS + 16 if coding == "gzip" else zlib.MAX_WBITS
    compressor = zlib.compressobj(9, wbits=wbits)
    parts = [compressor.compress(bytes(_MIB)) for _ in range(mib)]
    return b"".join([*parts, compressor.flush()])


async def send_bombs(
    ports: tuple[int, int], name: str, over_http: Sequence[Case], over_grpc: Sequence[GrpcCase]
) -> Tally:
    """Send bombs, so few at a time that each has a thread: one that is turned away was not looked at."""
    http, grpc = ports
    tally = await send_cases(http, name, over_http, MAX_PARSING)
    tally.add(await send_grpc(grpc, name, over_grpc, MAX_PARSING))
    return tally


async def send_bombs_at_once(
    ports: tuple[int, int], name: str, over_http: Sequence[Case], over_grpc: Sequence[GrpcCase]
) -> Tally:
    """Send bombs, :data:`AT_ONCE` at a time, over HTTP and gRPC together."""
    http, grpc = ports
    places = AT_ONCE * len(PATHS) // _PARTS
    tally, other = await asyncio.gather(
        send_cases(http, name, over_http, places), send_grpc(grpc, name, over_grpc, AT_ONCE - places)
    )
    tally.add(other)
    return tally


def over_http_of(count: int) -> int:
    """Return how many of so many bombs go over HTTP: as many for each path as for each method."""
    return -(-count * len(PATHS) // _PARTS)
