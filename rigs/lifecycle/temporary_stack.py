"""A stack of processes in a folder of its own, with a Postgres of its own, for as long as a run takes."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.stack import Stack

from understudy.adapters.embedded.postgres import EmbeddedPostgres


def end_when_told() -> None:
    """Have SIGTERM, which ``timeout`` sends, end everything that was started, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


@contextmanager
def a_stack(name: str) -> Iterator[Stack]:
    """Give a stack whose Postgres runs; afterwards its processes are ended and its folder is gone."""
    with tempfile.TemporaryDirectory(prefix=f"understudy-{name}-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # Postgres may run as another account
        postgres = EmbeddedPostgres(folder / "postgres")
        postgres.start()
        stack = Stack(folder, postgres.url)
        try:
            yield stack
        finally:
            stack.stop()
            postgres.stop("immediate")
