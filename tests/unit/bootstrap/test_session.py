"""A session opens a store when it is first used, once, and imports no adapter before."""

import subprocess
import sys

import pytest

from understudy.bootstrap.session import Session


async def test_a_store_is_opened_once():
    async with Session("postgresql://nowhere/registry", timeout_seconds=1.0) as session:
        assert session.registry is session.registry
        assert session.rollouts is session.rollouts


@pytest.mark.deep
def test_taking_traffic_back_waits_for_no_library_that_only_the_registry_needs():
    program = (
        "import sys; import understudy.entrypoints.cli.rollback; from understudy.bootstrap.session import Session; "
        "Session('postgresql://nowhere/registry', timeout_seconds=1.0).rollouts; "
        "print(*sorted({'alembic', 'grpc', 'scipy', 'sqlalchemy'} & sys.modules.keys()))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "\n"
