"""Work that its caller leaves behind: what the caller gets, and that the process can end meanwhile."""

import asyncio
import errno
import subprocess
import sys
import textwrap
from threading import Event

import pytest

from understudy.adapters.artifacts.bounded_thread import in_bounded_thread


async def test_its_caller_gets_what_it_returns_or_raises():
    def fail(given_up: Event) -> None:
        raise PermissionError("no")

    assert await in_bounded_thread(lambda given_up: given_up.is_set(), 60) is False
    with pytest.raises(PermissionError, match="no"):
        await in_bounded_thread(fail, 60)


async def test_a_time_out_of_the_file_system_keeps_its_words():
    def fail(given_up: Event) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    with pytest.raises(TimeoutError, match="Connection timed out"):
        await in_bounded_thread(fail, 60)


async def test_it_hears_that_its_time_is_over():
    heard = Event()

    def listen(given_up: Event) -> None:
        given_up.wait()
        heard.set()

    with pytest.raises(TimeoutError, match=r"longer than 0\.01 s"):
        await in_bounded_thread(listen, 0.01)

    assert await asyncio.to_thread(heard.wait, 60)


def test_the_end_of_the_process_does_not_wait_for_work_that_hangs():
    program = """
        import asyncio
        from threading import Event
        from understudy.adapters.artifacts.bounded_thread import in_bounded_thread

        async def main():
            work = asyncio.create_task(in_bounded_thread(lambda given_up: Event().wait(), 600))
            await asyncio.sleep(0)
            work.cancel()

        asyncio.run(main())
        print("ended")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=True)

    assert (ended.stdout, ended.stderr) == (b"ended\n", b"")
