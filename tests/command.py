"""The command line in the test's own process: starting Python and importing everything takes seconds of it each time.

``e2e/test_cli.py`` tests the installed command as a process; whatever is about signals needs one too.
"""

import asyncio
import io
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple

import structlog

from understudy.entrypoints.cli.main import main
from understudy.entrypoints.documents.json_text import SCHEMA

_OUT: ContextVar[io.TextIOWrapper] = ContextVar("_OUT")
_ERR: ContextVar[io.TextIOWrapper] = ContextVar("_ERR")
# The environment and the streams are the process's: one command at a time.
_ONE = threading.Lock()


class Done(NamedTuple):
    """What a process leaves: its exit code, and what it wrote to standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def document(self) -> dict[str, Any]:
        """The one document of ``--json``."""
        (line,) = self.out.splitlines()
        document: dict[str, Any] = json.loads(line)
        assert document["schema"] == SCHEMA
        return document

    @property
    def said(self) -> str:
        """What a person reads, on one line."""
        return " ".join((self.out + self.err).split())


class CommandLine:
    """Runs command lines as :func:`main` does in a process of its own, without a terminal, at 80 columns.

    Args:
        database_url: The ``DATABASE_URL`` of whoever types; ``None``: they have none.
    """

    def __init__(self, database_url: str | None) -> None:
        own = {} if database_url is None else {"DATABASE_URL": database_url}
        self._environment = {**own, "COLUMNS": "80", "NO_COLOR": "1"}

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Done:
        """Run one command line to its end; ``environment`` goes over the process's."""
        return copy_context().run(_run, arguments, stdin, {**self._environment, **environment})

    async def beside(self, *arguments: str, **environment: str) -> Done:
        """Run one command line in a thread, while the test's own event loop goes on."""
        return await asyncio.to_thread(self, *arguments, **environment)


def _run(arguments: tuple[str, ...], stdin: str, environment: Mapping[str, str]) -> Done:
    out, err = _stream(), _stream()
    _OUT.set(out)
    _ERR.set(err)
    with _ONE, _the_process_as_it_was():
        os.environ.update(environment)
        sys.argv = ["understudy", *arguments]
        sys.stdin = _stream(stdin)
        sys.stdout, sys.stderr = _Routed(_OUT, sys.stdout), _Routed(_ERR, sys.stderr)
        code = _exit_code()
    return Done(code, _written(out), _written(err))


def _exit_code() -> int:
    try:
        main()
    except SystemExit as end:
        # As the interpreter does: nothing is 0, a number is itself, anything else is 1.
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    raise AssertionError("the command line of a process ends it")


@contextmanager
def _the_process_as_it_was() -> Iterator[None]:
    """Put back what a command changes and its process would take with it."""
    environment, argv, streams = dict(os.environ), sys.argv, (sys.stdin, sys.stdout, sys.stderr)
    root, is_configured, logging_by = logging.getLogger(), structlog.is_configured(), structlog.get_config()
    handlers, level = list(root.handlers), root.level
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.argv, (sys.stdin, sys.stdout, sys.stderr) = argv, streams
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
        if is_configured:
            structlog.configure(**logging_by)
        if threading.current_thread() is threading.main_thread():
            for number, handler in signals.items():
                signal.signal(number, handler)


class _Routed:
    """A standard stream: the command's own for the command, and for everybody else in the process what it was."""

    def __init__(self, own: ContextVar[io.TextIOWrapper], before: Any) -> None:
        self._own = own
        self._before = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own.get(self._before), name)


def _stream(content: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content.encode()), encoding="utf-8", newline="\n", write_through=True)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    content = stream.buffer
    assert isinstance(content, io.BytesIO)
    return content.getvalue().decode()
