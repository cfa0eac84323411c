"""Starting a process imports that process alone."""

import subprocess
import sys

import pytest
from command import CommandLine


@pytest.mark.deep
def test_the_proxy_is_started_before_the_metrics_library_is_imported():
    program = "import sys, understudy.entrypoints.cli.serve; sys.exit('prometheus_client' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)

    assert done.returncode == 0


@pytest.mark.deep
def test_a_proxy_starts_without_what_only_reports_and_registrations_need():
    program = (
        "import sys, understudy.entrypoints.proxy.processes.uvicorn_process; "
        "sys.exit(', '.join({'sqlalchemy', 'scipy', 'pyarrow', 'typer'} & sys.modules.keys()) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.deep
def test_an_agent_starts_without_what_only_validations_need():
    program = (
        "import sys, understudy.entrypoints.cli.serve, understudy.entrypoints.agent; "
        "sys.exit(', '.join({'numpy', 'hpack', 'msgspec', 'httptools', 'sqlalchemy'} & sys.modules.keys()) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


async def test_an_agent_without_a_model_server_names_every_setting_that_is_missing():
    done = await CommandLine(None).beside("serve", "agent", UNDERSTUDY_SERVER_GROUP="onnx")

    assert done.code == 2
    missing = "UNDERSTUDY_SERVER_TARGET, UNDERSTUDY_SERVER_CONTROL, UNDERSTUDY_ARTIFACT_ROOT (or UNDERSTUDY_ARTIFACT_"
    assert f"{missing}STORES) not set" in done.said
