import sys
from pathlib import Path

import pytest

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.telemetry.process_usage import ProcessUsage
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry


def seconds_on(page: str) -> float:
    (line,) = [line for line in page.splitlines() if line.startswith("process_cpu_seconds_total ")]
    return float(line.split()[1])


def test_processor_time_is_counted_from_the_start_of_the_process_and_never_twice():
    usage, telemetry = ProcessUsage(), PrometheusTelemetry()

    usage.publish(telemetry)
    first = seconds_on(telemetry.exposition()[0].decode())
    sum(range(200_000))
    usage.publish(telemetry)
    second = seconds_on(telemetry.exposition()[0].decode())

    assert 0 < first < second < first + 5


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_memory_and_descriptors_are_told():
    telemetry = MemoryTelemetry()

    ProcessUsage().publish(telemetry)

    assert telemetry.gauges["process_resident_memory_bytes",] > 1_000_000
    descriptors = telemetry.gauges["process_open_fds",]
    assert descriptors >= 3 or (descriptors == 0 and Path("/proc/self/fd").stat().st_size == 0)
