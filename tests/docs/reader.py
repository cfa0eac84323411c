"""A reader who does what a page says, in terminals of their own, and in a folder that looks like a fresh clone."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from docs.browser import OpenBrowser
from docs.pages import Block, Browse, See, Step, Stop, Type, why_unlike
from playwright.sync_api import Error as BrowserError

from understudy.adapters.embedded.loopback_ports import free_port

BLOCK_SECONDS = 300.0
"""Longest time of one block, and of waiting for what another terminal shows."""
STOP_SECONDS = 40.0
POLL_SECONDS = 0.05
REPEAT_SECONDS = 1.0
MARK = "UNDERSTUDY_TEST_READER"
_OF_A_CLONE = (
    ".venv", ".venv-clients", ".venv-train", "LICENSE", "Makefile", "NOTICE", "README.md", "docs", "loadtests",
    "migrations", "pyproject.toml", "requirements", "src", "tools",
)  # fmt: skip
_PORT = re.compile(r"(?<![\d.])(80[89]\d|85\d\d)(?![\d.])")
"""Ports that pages name; each becomes a free one, the same throughout a page."""
_DROPPED = re.compile(r"UNDERSTUDY_.*|DATABASE_URL|REDIS_URL|VIRTUAL_ENV|PYTHON.*|MAKE.*|MFLAGS|PYTEST.*|UV_.*")


class Terminal:
    """One terminal: its folder and exported variables go from block to block.

    Each block is a shell of its own in a process group of its own, so that it can be ended whole.
    """

    def __init__(self, name: str, home: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self._home = home / name
        self._home.mkdir()
        self._folder = folder
        self._environment = dict(environment)
        self._shell: subprocess.Popen[bytes] | None = None
        self._blocks = 0

    @property
    def _log(self) -> Path:
        return self._home / f"{self._blocks}.log"

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def begin(self, script: str) -> None:
        assert self._shell is None, "something goes on in this terminal: stop it first (Ctrl-C)"
        self._blocks += 1
        kept = self._home / "kept.sh"
        file = self._home / f"{self._blocks}.sh"
        file.write_text(
            f'[ ! -f "{kept}" ] || . "{kept}"\n'
            f"""trap '{{ export -p; printf "cd %q\\n" "$PWD"; }} > "{kept}"' EXIT\n"""
            f"set -eo pipefail\n{script}",
            encoding="utf-8",
        )
        with self._log.open("wb") as log:
            self._shell = subprocess.Popen(
                ["bash", "--noprofile", "--norc", str(file)],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # Where tests run in the background, interrupts are ignored, and a child would inherit that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - there are no threads
            )

    def wait(self, seconds: float) -> int | None:
        """Return the exit code of what was begun; ``None`` when it goes on."""
        assert self._shell is not None
        try:
            code = self._shell.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._shell = None
        return code

    def interrupt(self) -> int | None:
        """Press Ctrl-C and return the exit code; what does not end by that is ended."""
        if self._shell is None:
            return None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._shell.pid, number)
            if (code := self.wait(STOP_SECONDS)) is not None:
                return code if number is signal.SIGINT else -number
        raise AssertionError(f"{self._shell} cannot be ended")


class Reader:
    """Follows pages. ``folder`` is where they are read: a clone, whose own state nobody touches."""

    def __init__(self, clone: Path, home: Path, repeat_seconds: float = REPEAT_SECONDS) -> None:
        self._home = home
        self._repeat_seconds = repeat_seconds
        self.folder = home / "understudy"
        self.folder.mkdir()
        for name in _OF_A_CLONE:
            if (clone / name).exists():
                (self.folder / name).symlink_to(clone / name)
        self._ports: dict[str, str] = {}
        self.mark = uuid4().hex
        self._environment = {
            **{name: value for name, value in os.environ.items() if not _DROPPED.fullmatch(name)},
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",  # as on a terminal
            "UNDERSTUDY_PORT": self._port("8080"),
            "UNDERSTUDY_METRICS_PORT": self._port("9090"),
            "UNDERSTUDY_MONITOR_METRICS_PORT": self._port("9091"),
            MARK: self.mark,
        }
        self._terminals: dict[str, Terminal] = {}
        self._browser = OpenBrowser(lambda name: self._terminal(name).said())

    def follow(self, step: Step) -> None:
        """Do a step.

        Raises:
            AssertionError: It did not go as the page says.
        """
        match step:
            case Stop():
                code = self._terminal(step.terminal).interrupt()
                # Of a command that ended well after Ctrl-C `make` says 130, or 2; a shell may die of the signal itself.
                assert code in (0, 2, 130, -signal.SIGINT), f"Ctrl-C in {step.terminal!r}: {code}"
            case Browse():
                self._browse(step)
            case See():
                self._see(self._terminal(step.terminal), [step.block], "")
            case Type() if "goes on" in step.block.marks:
                terminal = self._terminal(step.terminal)
                terminal.begin(self._typed(step.block))
                self._see(terminal, step.shown, step.block.marks["goes on"])
            case Type():
                self._type(step)

    def leave(self, patience_seconds: float = STOP_SECONDS) -> list[int]:
        """Stop everything, the last terminal first, and return the processes that were left over, which are ended."""
        self._browser.close()
        for terminal in reversed(self._terminals.values()):
            terminal.interrupt()
        give_up = time.monotonic() + patience_seconds
        left, looks_without = marked_processes(self.mark), 0
        # Twice none: a process that is being replaced by another program (exec) has no environment for a moment.
        while looks_without < 2 and time.monotonic() < give_up:
            time.sleep(POLL_SECONDS)
            left = marked_processes(self.mark)
            looks_without = 0 if left else looks_without + 1
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return left

    def _browse(self, step: Browse) -> None:
        try:
            self._browser.do(step.action)
        except (AssertionError, BrowserError) as problem:
            pytest.fail(f"line {step.line}: {' '.join(step.action)}: {problem}", pytrace=False)

    def _type(self, step: Type) -> None:
        terminal, marks = self._terminal(step.terminal), step.block.marks
        give_up = time.monotonic() + float(marks.get("within", "0"))
        while True:
            terminal.begin(self._typed(step.block))
            code = terminal.wait(BLOCK_SECONDS)
            if code is None:
                terminal.interrupt()
            wrong = self._wrong(step, code, self._as_written(terminal.said()))
            if wrong is None:
                return
            if time.monotonic() > give_up:
                pytest.fail(f"line {step.block.line}: {wrong}\n{step.block.content}\n{terminal.said()}", pytrace=False)
            time.sleep(self._repeat_seconds)

    def _wrong(self, step: Type, code: int | None, said: str) -> str | None:
        expected = int(step.block.marks.get("ends with", "0"))
        if code is None:
            return f"not over after {BLOCK_SECONDS:.0f} s"
        if code != expected:
            return f"exit code {code} and not {expected}"
        missing = next(filter(None, (why_unlike(shown, said) for shown in step.shown)), None)
        return None if missing is None else f"this line is not in the output, or not there: {missing}"

    def _see(self, terminal: Terminal, shown: list[Block], text: str) -> None:
        give_up = time.monotonic() + BLOCK_SECONDS
        while True:
            said = self._as_written(terminal.said())
            missing = next(filter(None, (why_unlike(block, said) for block in shown)), None)
            if text in said and missing is None:
                return
            ended = terminal.wait(0) if time.monotonic() < give_up else None
            if ended is not None or time.monotonic() > give_up:
                pytest.fail(f"not seen: {missing or text} (exit code {ended})\n{said}", pytrace=False)
            time.sleep(POLL_SECONDS)

    def _terminal(self, name: str) -> Terminal:
        if name not in self._terminals:
            self._terminals[name] = Terminal(name, self._home, self.folder, self._environment)
        return self._terminals[name]

    def _typed(self, block: Block) -> str:
        return _PORT.sub(lambda found: self._port(found[0]), block.content)

    def _as_written(self, said: str) -> str:
        """Return an output with the ports that the page names."""
        for written, port in self._ports.items():
            said = said.replace(port, written)
        return said

    def _port(self, written: str) -> str:
        if written not in self._ports:
            self._ports[written] = str(free_port())
        return self._ports[written]


def marked_processes(mark: str) -> list[int]:
    """Return the processes that have a mark in their environment; none where the system does not tell."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # gone, or another user's
            continue
    return found


def can_run() -> bool:
    """Whether there is what a reader has: a shell, ``curl`` and ``make``."""
    return all(shutil.which(program) for program in ("bash", "curl", "make"))
