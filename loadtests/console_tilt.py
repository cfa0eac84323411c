"""Asks a console for 20 different reports at once, each again as soon as it is answered, until standard input ends.

A process of its own, which ``console_beside`` starts: a thread beside the callers of a proxy would make them wait for
its turns of the interpreter. The key comes in ``UNDERSTUDY_TILT_KEY``; how often each status came is printed as JSON.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence

import httpx2
import orjson
from worlds.console import Visit

KEY = "UNDERSTUDY_TILT_KEY"
AGAIN_SECONDS = 0.05
"""After a report that was refused for want of a place: the console says when to try again, and these do not wait."""
OK = 200


async def ask(client: httpx2.AsyncClient, path: str, over: asyncio.Event, statuses: Counter[int]) -> None:
    """Ask for one report again and again."""
    while not over.is_set():
        status = (await client.get(path)).status_code
        statuses[status] += 1
        if status != OK:
            await asyncio.sleep(AGAIN_SECONDS)


async def tilt(origin: str, key: str, paths: Sequence[str]) -> Counter[int]:
    """Ask for all of them until standard input ends, and return how often each status came."""
    statuses, over = Counter[int](), asyncio.Event()
    limits = httpx2.Limits(max_connections=len(paths))
    async with httpx2.AsyncClient(base_url=origin, timeout=60, limits=limits) as client:
        await Visit(client, origin).sign_in(key)
        asking = [asyncio.create_task(ask(client, path, over, statuses)) for path in paths]
        await asyncio.to_thread(sys.stdin.read)
        over.set()
        await asyncio.gather(*asking)
    return statuses


if __name__ == "__main__":
    found = asyncio.run(tilt(sys.argv[1], os.environ[KEY], sys.argv[2:]))
    sys.stdout.write(orjson.dumps({str(status): count for status, count in sorted(found.items())}).decode())
