"""Starting a process imports that process alone."""

import subprocess
import sys


def test_the_proxy_is_started_before_the_metrics_library_is_imported():
    program = "import sys, understudy.entrypoints.cli.serve; sys.exit('prometheus_client' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)

    assert done.returncode == 0
