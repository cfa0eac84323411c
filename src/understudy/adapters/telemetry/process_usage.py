"""The processor time, memory and descriptors of this process, and the memory limit of its container."""

import os
import resource
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from understudy.ports.telemetry.telemetry import Telemetry

_MEMORY = Path("/proc/self/statm")
_DESCRIPTORS = Path("/proc/self/fd")
"""Its size is the number of descriptors since Linux 6.2, and 0 before. Listing thousands would block the event loop."""
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of the container: cgroup v2, cgroup v1."""
_NO_LIMIT = 2**60
"""From here on a limit is none: cgroup v1 has no other word for that."""


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 where there is no ``/proc``."""
    with suppress(OSError):
        return int(_MEMORY.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def memory_limit_bytes(files: Iterable[Path] = _MEMORY_LIMITS) -> int | None:
    """Return how much memory the container may use, if that is limited.

    Args:
        files: Where the limit is looked for.
    """
    for file in files:
        with suppress(OSError, ValueError):  # v2 says ``max`` for none
            limit = int(file.read_text(encoding="ascii"))
            return limit if limit < _NO_LIMIT else None
    return None


class ProcessUsage:
    """Publishes processor time on every system, memory and descriptors where there is ``/proc``.

    prometheus_client has a collector of the same figures, which is empty with several workers.
    """

    def __init__(self) -> None:
        self._published_seconds = 0.0

    def publish(self, telemetry: Telemetry) -> None:
        """Set the gauges, and count the processor time since the last call."""
        used_seconds = time.process_time()
        telemetry.count("process_cpu_seconds_total", by=used_seconds - self._published_seconds)
        self._published_seconds = used_seconds
        telemetry.set("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        with suppress(OSError):
            telemetry.set("process_resident_memory_bytes", resident_bytes())
            telemetry.set("process_open_fds", _DESCRIPTORS.stat().st_size)
