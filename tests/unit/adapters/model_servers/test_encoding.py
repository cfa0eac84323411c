import asyncio
import threading
import time

import pytest

from understudy.adapters.model_servers.encoding import encoded, read_long
from understudy.core.schema.tensors import Block
from understudy.errors import DeadlineExceeded

BLOCK = Block((b"x" * 60, b"y" * 40), ((60,), (40,)))


def thread_name(block: Block) -> bytes:
    assert block is BLOCK
    return threading.current_thread().name.encode()


@pytest.mark.parametrize(("inline_bytes", "is_inline"), [(100, True), (99, False)])
async def test_a_message_is_made_in_a_thread_from_one_byte_beyond_the_limit(inline_bytes, is_inline):
    message, left_seconds = await encoded(thread_name, BLOCK, inline_bytes, 5.0)

    assert (message == threading.current_thread().name.encode()) is is_inline
    assert left_seconds == 5.0 if is_inline else left_seconds < 5.0


async def test_the_time_that_it_takes_is_taken_from_the_time_out_down_to_nothing():
    def slow(_block: Block) -> bytes:
        time.sleep(0.02)
        return b""

    assert await encoded(slow, BLOCK, 0, 0.01) == (b"", 0.0)


async def test_a_long_answer_is_read_in_a_thread():
    name = await read_long(lambda _answer: threading.current_thread().name, b"", asyncio.Lock(), 5.0)

    assert name != threading.current_thread().name


async def test_a_long_answer_whose_turn_comes_too_late_is_past_its_deadline():
    turn = asyncio.Lock()

    async with turn:
        with pytest.raises(DeadlineExceeded):
            await read_long(len, b"", turn, 0.01)

    assert await read_long(len, b"", turn, 5.0) == 0
