"""What this process uses of the machine."""

import os
import time
from contextlib import suppress
from pathlib import Path

from understudy.ports.telemetry import Telemetry

_MEMORY = Path("/proc/self/statm")
_DESCRIPTORS = Path("/proc/self/fd")
"""Its size is their number since Linux 6.2, and 0 before. Listing thousands of them would hold up the event loop."""


class ProcessUsage:
    """Tells processor time everywhere, memory and descriptors where ``/proc`` does.

    prometheus_client has a collector of the same figures, which says nothing with several workers.
    """

    def __init__(self) -> None:
        self._told_seconds = 0.0

    def publish(self, telemetry: Telemetry) -> None:
        """Set the gauges, and count the processor time since the last call."""
        used_seconds = time.process_time()
        telemetry.count("process_cpu_seconds_total", by=used_seconds - self._told_seconds)
        self._told_seconds = used_seconds
        with suppress(OSError):
            pages = int(_MEMORY.read_text(encoding="ascii").split()[1])
            telemetry.set("process_resident_memory_bytes", pages * os.sysconf("SC_PAGE_SIZE"))
            telemetry.set("process_open_fds", _DESCRIPTORS.stat().st_size)
