"""One tenant that sends as much as it can, in a process of its own.

Beside whoever measures it would be that one's own event loop which has to send half a megabyte a call.

``python -m rigs.faults.flood PORT KEY.SECRET SECONDS`` prints how many calls were answered with 429, and how
many otherwise.
"""

import asyncio
import sys
import time
from typing import NamedTuple

from e2e.load import Connection
from e2e.stack import VISITS

from rigs.faults.inputs import body_for

PADDING = b" " * 500_000
ENDS_SECONDS = 20.0
"""How much longer than it was told to a flood may take."""


class Flood(NamedTuple):
    """How the calls of a flood were answered."""

    answered_429: int
    answered_otherwise: int


async def flood(port: int, key: str, seconds: float) -> Flood:
    """Run a flood in a process of its own.

    Raises:
        RuntimeError: It ended with an error.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rigs.faults.flood", str(port), key, str(seconds)), stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await asyncio.wait_for(child.communicate(), seconds + ENDS_SECONDS)
    finally:
        if child.returncode is None:
            child.kill()
    if child.returncode != 0:
        raise RuntimeError(f"the flood ended with status {child.returncode}")
    return Flood(*map(int, out.split()))


async def _calls(port: int, key: str, seconds: float) -> Flood:
    connection = Connection("127.0.0.1", port)
    body = body_for(0) + PADDING
    answered = [0, 0]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answer = await connection.post(VISITS, body, f"authorization: Bearer {key}\r\n")
        answered[answer.status != 429] += 1
    connection.close()
    return Flood(*answered)


if __name__ == "__main__":
    found = asyncio.run(_calls(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
    print(*found)
