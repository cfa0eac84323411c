import resource
import sys
from pathlib import Path

import pytest

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.telemetry.process_usage import ProcessUsage, memory_limit_bytes, resident_bytes
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
    assert telemetry.gauges["process_max_fds",] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    descriptors = telemetry.gauges["process_open_fds",]
    assert descriptors >= 3 or (descriptors == 0 and Path("/proc/self/fd").stat().st_size == 0)


@pytest.mark.parametrize(
    ("text", "limit"), [("536870912\n", 536_870_912), ("max\n", None), ("9223372036854771712\n", None), (None, None)]
)
def test_the_memory_limit_is_the_containers_where_it_has_one(text, limit, tmp_path):
    newer, older = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    if text is not None:
        older.write_text(text)

    assert memory_limit_bytes((newer, older)) == limit


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_the_memory_of_this_process_is_known():
    assert resident_bytes() > 1_000_000
