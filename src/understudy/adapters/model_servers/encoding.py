"""Requests to model servers: short ones are encoded on the event loop, long ones in a thread."""

import asyncio
from collections.abc import Callable

from understudy.core.schema.tensors import Block

COPIED_BYTES = 1_048_576
"""Of tensors whose content goes into the message as it is; more take longer than a millisecond."""
LISTED_BYTES = 65_536
"""Of tensors whose elements go into the message one by one (measured: 4 M of them take 0.3 s)."""


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
