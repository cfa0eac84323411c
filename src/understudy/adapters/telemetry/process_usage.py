"""The processor time, memory and descriptors of this process."""

import os
import time
from contextlib import suppress
from pathlib import Path

from understudy.ports.telemetry import Telemetry

_MEMORY = Path("/proc/self/statm")
_DESCRIPTORS = Path("/proc/self/fd")
"""Its size is the number of descriptors since Linux 6.2, and 0 before. Listing thousands would block the event loop."""


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
        with suppress(OSError):
            pages = int(_MEMORY.read_text(encoding="ascii").split()[1])
            telemetry.set("process_resident_memory_bytes", pages * os.sysconf("SC_PAGE_SIZE"))
            telemetry.set("process_open_fds", _DESCRIPTORS.stat().st_size)
