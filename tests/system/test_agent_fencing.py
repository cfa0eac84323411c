"""Two agents of one server, five hundred changes of the lease: the one that was replaced writes nothing."""

import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
from e2e.stack import sql

from understudy.adapters.postgres.loading.agent_store import PostgresAgentStore
from understudy.adapters.postgres.monitoring.lease import PostgresLease, agent_of
from understudy.core.loading.state import LoadingState
from understudy.errors import LeadershipLost
from understudy.ports.loading.agent_store import ServerReport, ValidationResult
from understudy.ports.monitoring.lease import Epoch

pytestmark = pytest.mark.timeout(300)
CHANGES = 500
SERVER = ServerReport("onnx-0", "onnx", "10.0.0.7:8500", "understudy 1", "")
DIGEST = "sha256:" + "ab" * 32
_WRITTEN = "SELECT state, attempt, epoch, artifact_digest FROM LoadedVersion"


def writes_of(store: PostgresAgentStore, version_id: int, epoch: Epoch) -> Sequence[Callable[[], Awaitable[object]]]:
    """Return each write that an agent may make, under its epoch."""
    return (
        lambda: store.look(SERVER, epoch),
        lambda: store.write(version_id, LoadingState.END, epoch, attempt=99),
        lambda: store.fail(version_id, "E217", "of before", epoch, attempt=99, retry_seconds=None),
        lambda: store.pin(version_id, "sha256:" + "cd" * 32, epoch),
        lambda: store.record_validation(version_id, ValidationResult("of before", DIGEST, passed=True, said=""), epoch),
        lambda: store.announce(version_id, epoch),
        lambda: store.withdraw(version_id, LoadingState.QUIESCING, epoch),
        lambda: store.forget(version_id, epoch),
    )


async def test_a_holder_that_wakes_after_another_has_taken_the_lease_writes_nothing_in_five_hundred_changes(
    database_url,
):
    insert = (
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('visits', '1', 'visits/1', 'onnx', '{}') RETURNING id"
    )
    version_id = (await sql(database_url, insert))[0][0]
    row, chance = agent_of(SERVER.name), random.Random(6)
    stores = [PostgresAgentStore(database_url, SERVER.name, timeout_seconds=10) for _ in range(2)]
    leases = [PostgresLease(database_url, timeout_seconds=10, row=row) for _ in range(2)]
    try:
        holder, epoch = 0, await leases[0].take_or_renew("agent-0")
        for number in range(CHANGES):
            assert epoch is not None
            paused, old = holder, epoch
            await sql(database_url, "UPDATE AgentLease SET renewed_at = 'epoch'")
            holder = 1 - paused
            epoch = await leases[holder].take_or_renew(f"agent-{holder}")
            assert epoch == old + 1
            await stores[holder].look(SERVER, epoch)
            await stores[holder].write(version_id, LoadingState.LOADING, epoch, attempt=1, digest=DIGEST)
            before = await sql(database_url, _WRITTEN)

            with pytest.raises(LeadershipLost):
                await chance.choice(writes_of(stores[paused], version_id, old))()

            assert await sql(database_url, _WRITTEN) == before, f"change {number}"
            assert before[0]["epoch"] == epoch
    finally:
        for store in stores:
            await store.close()
        for lease in leases:
            await lease.close()
