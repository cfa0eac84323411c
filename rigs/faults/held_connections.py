"""Which callers' connections a process holds, as the kernel lists them."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ESTABLISHED = "01"


def held_connections(pid: int, port: int, proc: Path = Path("/proc")) -> int:
    """Return how many established connections to a local IPv4 port a process holds.

    The kernel gives them to the workers of one listening socket in turn of their asking, so a worker's part of them is
    a matter of chance. Source: proc(5), ``/proc/pid/fd`` and ``/proc/net/tcp``.
    """
    inodes = {
        fields[9]
        for fields in (line.split() for line in (proc / "net/tcp").read_text().splitlines()[1:])
        if fields[3] == _ESTABLISHED and int(fields[1].rpartition(":")[2], 16) == port
    }
    return len(inodes & {link.removeprefix("socket:[").removesuffix("]") for link in _open_files(proc / str(pid))})


def _open_files(process: Path) -> Iterator[str]:
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # It was closed meanwhile.
            yield str(descriptor.readlink())
