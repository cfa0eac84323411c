import asyncio
import logging
import os
import signal
import sys

import structlog
from command import CommandLine

NOBODY = CommandLine("postgresql://127.0.0.1:1/none")


def the_process() -> tuple[object, ...]:
    """Return what a command could change."""
    return (
        dict(os.environ),
        sys.argv,
        sys.stdin,
        sys.stdout,
        sys.stderr,
        structlog.get_config(),
        logging.getLogger().handlers,
        [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    )


def test_a_command_in_the_tests_process_ends_as_a_process_does_and_leaves_nothing_in_it():
    before = the_process()

    done = NOBODY("--version")
    wrong = NOBODY("rollout", "dance", COLUMNS="40")

    assert (done.code, done.out.split()[0], done.err) == (0, "understudy", "")
    assert (wrong.code, wrong.out, "dance" in wrong.err) == (2, "", True)
    assert max(map(len, wrong.err.splitlines())) <= 40
    assert the_process() == before


async def test_what_others_print_meanwhile_is_not_the_commands(capsys):
    async def chatter() -> None:
        while True:
            sys.stdout.write("chatter\n")
            await asyncio.sleep(0.001)

    chattering = asyncio.create_task(chatter())
    done = await NOBODY.beside("--help")
    chattering.cancel()

    assert done.code == 0
    assert "chatter" not in done.out
    assert "chatter" in capsys.readouterr().out
