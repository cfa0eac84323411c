"""The runner's hand on the TCP fault proxy: one link before each thing that the product depends on."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Self

from rigs.faults.tcp import HEALTHY, Behaviour, Mode, command_for

STOP_SECONDS = 5.0


class Link:
    """A port of 127.0.0.1 that leads to a server."""

    def __init__(self, links: "Links", port: int, upstream_port: int) -> None:
        self._links = links
        self.port = port
        self.upstream_port = upstream_port

    @property
    def connections(self) -> int:
        """Connections of clients that are open now."""
        return int(self._links.ask({"do": "count", "port": self.port})["connections"])

    def behave(self, behaviour: Behaviour = HEALTHY) -> None:
        """Make the link do something, or nothing any more; it does when this returns."""
        self._links.ask(command_for(self.port, behaviour))

    def move(self, upstream_port: int, *, resets: bool = True) -> None:
        """Lead to another server from now on; connections to the one before are reset, or go on to their end."""
        self.upstream_port = upstream_port
        self._links.ask({"do": "move", "port": self.port, "upstream": upstream_port, "resets": resets})

    @contextmanager
    def doing(self, behaviour: Behaviour) -> Iterator[None]:
        """Do something for the length of a block."""
        self.behave(behaviour)
        try:
            yield
        finally:
            self.behave()

    def refusing(self) -> AbstractContextManager[None]:
        """Be dead for the length of a block."""
        return self.doing(Behaviour(Mode.REFUSE))

    def blackholed(self) -> AbstractContextManager[None]:
        """Be silent for the length of a block."""
        return self.doing(Behaviour(Mode.BLACKHOLE))


class Links:
    """The fault proxy's process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rigs.faults.tcp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.stdin is not None and self._process.stdout is not None:
            self._process.stdin.close()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_SECONDS)
            self._process.stdout.close()

    def to(self, upstream_port: int) -> Link:
        """Open a link to a server of 127.0.0.1."""
        return Link(self, self.ask({"do": "open", "upstream": upstream_port})["port"], upstream_port)

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Have a command obeyed."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer
