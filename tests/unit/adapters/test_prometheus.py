import os
import subprocess
import sys
from pathlib import Path

from understudy.adapters.prometheus import PrometheusTelemetry

IN_ONE_WORKER = """
from understudy.adapters.prometheus import PrometheusTelemetry
telemetry = PrometheusTelemetry()
telemetry.set("policy_rejected", 1, "visits")
telemetry.forget("policy_rejected", "visits")
print(telemetry.exposition()[0].decode())
"""


def test_a_forgotten_gauge_leaves_the_page_and_others_stay():
    telemetry = PrometheusTelemetry()
    telemetry.set("policy_rejected", 1, "visits")
    telemetry.set("policy_rejected", 1, "digits")

    telemetry.forget("policy_rejected", "visits")
    telemetry.forget("policy_rejected", "never seen")

    page = telemetry.exposition()[0].decode()
    assert 'policy_rejected{model="digits"} 1.0' in page
    assert 'model="visits"' not in page
    assert "never seen" not in page


def test_with_several_workers_a_forgotten_gauge_is_0(tmp_path: Path):
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}

    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", IN_ONE_WORKER],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line.startswith("policy_rejected{")]
    assert len(lines) == 1
    assert 'model="visits"' in lines[0]
    assert lines[0].endswith(" 0.0")
