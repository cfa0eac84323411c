"""Ctrl-C at any moment of a command that asks a real database: it ends, and no traceback is seen."""

import os
import subprocess
import sys

import pytest

COUNTING = """
import os, signal, sys
from understudy.entrypoints.cli.start import main

moment, seen = int(sys.argv.pop(1)), 0

def count(_event, _arguments):
    global seen
    seen += 1
    if seen == moment:
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background, and so tests, ignore it
sys.addaudithook(count)
try:
    main()
finally:
    if moment == 0:
        print(seen, file=sys.stderr)
"""
"""The interpreter tells of each file, import, socket and thread: moments that no machine's speed moves."""
MOMENTS = 14
INTERRUPTED = (130, -2)
"""By the command itself, or by the signal once it has nothing to clean up; a shell says 130 of both."""


@pytest.mark.deep
def test_a_command_that_is_interrupted_at_any_moment_says_nothing_of_its_insides(database_url):
    def ask(moment: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", COUNTING, str(moment), "version", "list"],
            capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "DATABASE_URL": database_url, "COLUMNS": "80", "NO_COLOR": "1"},
        )  # fmt: skip

    whole = ask(0)
    moments = [int(whole.stderr.split()[-1]) * number // MOMENTS for number in range(1, MOMENTS)]
    ended = {moment: ask(moment) for moment in moments}

    assert whole.returncode == 0, whole
    assert {moment: done for moment, done in ended.items() if "Traceback" in done.stderr} == {}
    unlike = {moment: done for moment, done in ended.items() if done.returncode not in INTERRUPTED}
    assert {moment: done for moment, done in unlike.items() if done.stdout != whole.stdout} == {}
    assert len(unlike) < len(ended)
