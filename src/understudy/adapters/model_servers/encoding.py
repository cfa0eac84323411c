"""Messages to and from model servers: short ones are encoded and read on the event loop, long ones in a thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from understudy.core.schema.tensors import Block
from understudy.errors import DeadlineExceeded

T = TypeVar("T")

COPIED_BYTES = 1_048_576
"""Of tensors whose content goes into the message as it is; more take longer than a millisecond."""
LISTED_BYTES = 65_536
"""Of tensors whose elements go into the message one by one (measured: 4 M of them take 0.3 s), and of an answer."""


async def encoded(
    encode: Callable[[Block], bytes], block: Block, inline_bytes: int, timeout_seconds: float
) -> tuple[bytes, float]:
    """Return a block's message, and how much is left of the time-out.

    Above ``inline_bytes`` of contents it is encoded in a thread, so that the event loop stays free for other calls.
    """
    if sum(map(len, block.contents)) <= inline_bytes:
        return encode(block), timeout_seconds
    clock = asyncio.get_running_loop().time
    began = clock()
    message = await asyncio.to_thread(encode, block)
    return message, max(timeout_seconds - (clock() - began), 0.0)


async def read_long(read: Callable[[bytes], T], answer: bytes, turn: asyncio.Lock, timeout_seconds: float) -> T:
    """Return what ``read`` makes of an answer, in a thread, so that the event loop stays free for other calls.

    Answers that share ``turn`` are read one at a time: a model server whose every answer is long leaves a thread to
    other work.

    Raises:
        DeadlineExceeded: ``timeout_seconds`` passed. The thread reads on, and what it returns is discarded.
    """
    try:
        async with asyncio.timeout(timeout_seconds), turn:
            return await asyncio.to_thread(read, answer)
    except TimeoutError:
        raise DeadlineExceeded("upstream") from None
