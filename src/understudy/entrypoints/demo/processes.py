"""The demo's child processes: started together, watched, and ended together whatever happens."""

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from understudy.adapters.embedded.loopback_ports import LOOPBACK
from understudy.entrypoints.demo import watchdog
from understudy.entrypoints.demo.keep_alive import OK, KeepAliveClient
from understudy.entrypoints.demo.refusal import DemoRefused

START_SECONDS = 60.0
GRACE_SECONDS = 5.0
CALL_SECONDS = 2.0
POLL_SECONDS = 0.03
TAIL_LINES = 12


class Child:
    """A process that we started, with its log."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._log_path = log_path
        self._ended = asyncio.ensure_future(process.wait())

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; ``None`` while the process runs."""
        return self._process.returncode

    async def ended(self) -> int:
        """Wait for the end and return the exit status."""
        return await asyncio.shield(self._ended)

    async def first_line(self) -> str:
        """Return the first line that the process prints.

        Raises:
            DemoRefused: It ended before, or took over 30 seconds.
        """
        stdout = self._process.stdout
        if stdout is None:
            raise ValueError(f"{self.name} was started without a pipe")
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await stdout.readline()
        except TimeoutError:
            raise self.refusal(f"was not ready after {START_SECONDS:.0f} s") from None
        if not line:
            raise self.refusal(ending(await self.ended()))
        return line.decode()

    def refusal(self, what: str) -> DemoRefused:
        """Return the error that says what became of the process, with the end of its log."""
        tail = "\n".join(f"    {line}" for line in tail_of(self._log_path))
        detail = f"{self.name} {what}; the end of {self._log_path}:\n{tail}" if tail else f"{self.name} {what}"
        return DemoRefused(detail, f"Read {self._log_path}, or start afresh with understudy demo --reset.")

    async def stop(self) -> None:
        """Ask the process to end, and make it when five seconds were not enough."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.status is not None:
                return
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    await self.ended()


class Watchdog:
    """The process that ends the others when this one is killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process

    @classmethod
    async def start(cls) -> "Watchdog":
        """Start it: a bare interpreter, ready in some 20 ms."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", watchdog.__file__, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        return cls(process)

    def watch(self, pid: int, number: signal.Signals = signal.SIGTERM) -> None:
        """Have a process ended with us; ``number`` is the signal that asks it to."""
        if self._process.stdin is not None:
            self._process.stdin.write(f"{pid} {int(number)}\n".encode())

    async def stop(self) -> None:
        """Let it go; call this when everything else has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._process.wait()


async def start_child(
    name: str,
    arguments: Sequence[str],
    log_folder: Path,
    watchdog: Watchdog,
    environment: Mapping[str, str | None] | None = None,
    *,
    reads_line: bool = False,
) -> Child:
    """Start ``python arguments…`` in a session of its own, so that Ctrl-C reaches the demo alone.

    Args:
        name: Of the process, for messages; its log is ``<name>.log``.
        arguments: Of the interpreter.
        log_folder: Where the log goes, replacing the one before.
        watchdog: Ends the process when we are killed.
        environment: Added to our own; ``None`` takes a variable away.
        reads_line: Whether :meth:`Child.first_line` will be called.
    """
    log_path = log_folder / f"{name}.log"
    merged = {**os.environ, **(environment or {})}
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if reads_line else log,
            stderr=log,
            env={name: value for name, value in merged.items() if value is not None},
            start_new_session=True,
        )
    watchdog.watch(process.pid)
    return Child(name, process, log_path)


async def watch_children(children: Sequence[Child], on_end: Callable[[Child, int], None]) -> None:
    """Call ``on_end`` for each child that ends, until all have; what it raises ends the watch."""

    async def watch(child: Child) -> None:
        on_end(child, await child.ended())

    try:
        async with asyncio.TaskGroup() as group:  # not gather, which would let the others go on after an error
            for child in children:
                group.create_task(watch(child))
    except BaseExceptionGroup as problems:
        raise problems.exceptions[0] from None


async def until_answers(child: Child, port: int, path: str) -> None:
    """Wait until a process answers a GET well.

    Raises:
        DemoRefused: It ended, or does not answer after 30 seconds.
    """
    client = KeepAliveClient(LOOPBACK, port)
    give_up = time.monotonic() + START_SECONDS
    try:
        while time.monotonic() < give_up:
            if child.status is not None:
                raise child.refusal(ending(child.status))
            with suppress(OSError):
                if (await client.get(path, CALL_SECONDS)).status == OK:
                    return
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await client.close()
    raise child.refusal(f"was not ready after {START_SECONDS:.0f} s")


def ending(status: int) -> str:
    """Say how a process ended."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def tail_of(path: Path, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log; none when it cannot be read."""
    try:
        with path.open(errors="replace") as log:
            return [line.rstrip() for line in deque(log, maxlen=lines)]
    except OSError:
        return []
