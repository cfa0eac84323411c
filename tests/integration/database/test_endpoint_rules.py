"""Endpoints that may not be: refused by the database, and by whoever connects; a planted listener hears nothing."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address

import asyncpg
import pytest
from builders import a_version
from pydantic import ValidationError
from structlog.testing import capture_logs

from understudy.adapters import migrations
from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.connect import connect, replicas_of
from understudy.adapters.model_servers.replicas.replica import Replica
from understudy.adapters.model_servers.replicas.replica_set import ReplicaSet
from understudy.core.upstream.endpoint_rules import FORBIDDEN, NO_RULES, judge_address, parse_rules, parse_target
from understudy.errors import BackendUnavailable
from understudy.ports.upstream.model_backend import ModelBackend
from understudy.settings import Settings

INSERT = "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)"
NEVER = [
    "169.254.169.254:80",
    "[fe80::1]:80",
    "[::ffff:169.254.169.254]:80",
    "[64:ff9b::a9fe:a9fe]:80",
    "[::a9fe:a9fe]:80",
    "[::ffff:0:a9fe:a9fe]:80",
    "[2002:a9fe:a9fe::1]:80",
    "[64:ff9b:1::a9fe:a9fe]:80",
    "[64:ff9b:1:a9fe:a9:fe00::]:80",
    "[2002:6464:64c8::]:80",
    "[fd00:ec2::254]:80",
    "[fd00:ec2::23]:80",
    "[fd20:ce::254]:80",
    "[fd00:c1::a9fe:a9fe]:80",
    "[fd00:42::42]:80",
    "[fec0::1]:80",
    "[2001:0:4136:e378::1]:80",
    "100.100.100.200:80",
    "168.63.129.16:80",
    "0.0.0.0:80",
    "[::]:80",
    "224.0.0.1:80",
    "255.255.255.255:80",
    "metadata.google.internal:80",
    "Metadata.Google.Internal.:80",
    "metadata:80",
]
LOOPBACK = [
    "127.0.0.1:9000",
    "127.9.9.9:9000",
    "[::1]:9000",
    "[::ffff:7f00:1]:9000",
    "localhost:9000",
    "a.LOCALHOST:9000",
    "localhost.:9000",
]
FINE = ["10.1.2.3:8500", "tfs-churn-7:8500", "m.prod.svc.cluster.local:8500", "[2001:db8::1]:8500",
        "[2002:a01:203::1]:8500", "[64:ff9b:1::a01:203]:8500", "[64:ff9b:1:a01:2:300::]:8500"]  # fmt: skip


@pytest.fixture
async def version(database: asyncpg.Connection) -> int:
    found: int = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('churn', '6', 's3://models', 'onnx', '{}') RETURNING id"
    )
    return found


async def refused_by(database: asyncpg.Connection, version: int, targets: list[str]) -> list[str]:
    refused = []
    for target in targets:
        try:
            await database.execute(INSERT, version, target)
        except asyncpg.CheckViolationError:
            refused.append(target)
    return refused


@pytest.mark.parametrize("is_one_machine", [True, False])
async def test_the_database_takes_no_address_that_is_nobodys_and_this_machine_only_where_it_says_so(
    database, version, is_one_machine
):
    await database.execute("UPDATE Installation SET loopback_endpoints = $1", is_one_machine)

    refused = await refused_by(database, version, [*NEVER, *LOOPBACK, *FINE])

    assert refused == (NEVER if is_one_machine else [*NEVER, *LOOPBACK])


async def test_the_refusal_says_what_and_how_one_machine_permits_itself(database, version):
    await database.execute("UPDATE Installation SET loopback_endpoints = FALSE")

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await database.execute(INSERT, version, "127.0.0.1:9000")

    assert "127.0.0.1:9000 is the machine of whoever calls it" in str(refused.value)
    assert refused.value.detail == "E203"
    await database.execute(str(refused.value.hint).partition(": ")[2])
    await database.execute(INSERT, version, "127.0.0.1:9000")


async def test_an_update_is_judged_as_an_insert_is(database, version):
    await database.execute(INSERT, version, "tfs-churn-7:8500")

    with pytest.raises(asyncpg.CheckViolationError):
        await database.execute("UPDATE ModelEndpoint SET target = '169.254.169.254:80'")


@pytest.mark.old_schema
async def test_an_installation_with_model_servers_on_its_own_machine_keeps_them(database, database_url, version):
    await migrations.downgrade(database_url, "0007", lose_data=True)
    await database.execute(INSERT, version, "127.0.0.1:9000")

    await migrations.upgrade(database_url)

    assert await database.fetchval("SELECT loopback_endpoints FROM Installation")
    with pytest.raises(asyncpg.PostgresError):
        await database.execute("INSERT INTO Installation VALUES (FALSE, TRUE)")


def test_whoever_connects_judges_addresses_as_the_database_does():
    for endpoint in NEVER:
        target = parse_target(endpoint)
        if target.literal is not None:
            assert judge_address(target.host, target.literal, parse_rules("")) is not None, endpoint
    for endpoint in LOOPBACK:
        target = parse_target(endpoint)
        assert judge_address(target.host, target.literal or ip_address("127.0.0.1"), parse_rules("")) is None, endpoint


@asynccontextmanager
async def canary(host: str = "127.0.0.1") -> AsyncIterator[tuple[int, list[object]]]:
    """A listener that must hear nothing; yields its port and who came."""
    came: list[object] = []

    async def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer.get_extra_info("peername"))
        writer.close()

    server = await asyncio.start_server(note, host, 0)
    try:
        yield server.sockets[0].getsockname()[1], came
    finally:
        server.close()


@pytest.mark.parametrize("endpoint", ["127.0.0.1:{}", "localhost:{}", "[::ffff:127.0.0.1]:{}"])
async def test_a_listener_that_is_not_on_the_operators_list_gets_no_connection(endpoint):
    async with canary() as (port, came):
        version = a_version("1", endpoints=[endpoint.format(port)])
        backend = connect(version, rules=parse_rules("10.0.0.0/8,*.models.internal"))
        assert "operator's list" in await why_refused(backend)
        ready = await backend.ready(1)
        await backend.close()

    assert came == []
    assert not ready


async def test_a_name_that_resolves_to_this_machine_gets_no_connection():
    # This machine's own name is a name that somebody else answers for; where it is not in /etc/hosts there is no test.
    name = await own_name()
    async with canary("0.0.0.0") as (port, came):
        backend = connect(a_version("1", endpoints=[f"{name}:{port}"]), rules=parse_rules("203.0.113.0/24"))
        assert "is refused" in await why_refused(backend)
        await backend.close()

    assert came == []


async def why_refused(backend: ModelBackend) -> str:
    """Return why a call found no replica, of which its caller is told no address."""
    with pytest.raises(BackendUnavailable) as told:
        await replicas_behind(backend).call("/any/method", b"", 5)
    assert not re.search(r"\d+\.\d+\.|:\d|localhost|unix", told.value.detail)
    assert isinstance(told.value.__cause__, BackendUnavailable)
    return told.value.__cause__.detail


async def test_an_endpoint_that_is_not_found_is_looked_for_once_a_second_and_not_by_each_call():
    now = [0.0]
    with capture_logs() as lines:
        replica = Replica("169.254.169.254:80", PLAIN_WIRE, lambda: now[0])
        for now[0] in (tick / 100 for tick in range(250)):
            with pytest.raises(BackendUnavailable):
                await replica.open()
        await replica.close()

    assert [line["event"] for line in lines] == ["endpoint.not_found"] * 3


def replicas_behind(backend: ModelBackend) -> ReplicaSet:
    found = replicas_of(backend)
    assert found is not None
    return found


async def own_name() -> str:
    name = socket.gethostname()
    try:
        await asyncio.get_running_loop().getaddrinfo(name, 80)
    except OSError:
        pytest.skip("this machine's name resolves to nothing")
    return name


@pytest.mark.parametrize("endpoint", ["169.254.169.254:80", "unix:/tmp/s", "[::]:80", "0.0.0.0:{}"])
async def test_what_slipped_past_the_database_is_not_connected_to(endpoint):
    async with canary() as (port, came):
        backend = connect(a_version("1", endpoints=[endpoint.format(port)]), {})
        assert re.search(r"is refused|cannot be used", await why_refused(backend))
        await backend.close()

    assert came == []


async def test_a_name_on_the_list_is_connected_to(model_port):
    version = a_version("1", endpoints=[f"localhost:{model_port('visits:1')}"], backend={"model_name": "visits"})
    backend = connect(version, rules=parse_rules("localhost"))

    assert await backend.ready(10)
    await backend.close()


async def test_a_list_that_cannot_be_read_says_which_entry():
    with pytest.raises(ValidationError, match=r"10\.0\.0\.0/33"):
        Settings(endpoint_allow="10.0.0.0/8, 10.0.0.0/33")


async def test_database_and_proxy_have_one_list_of_forbidden_networks(database):
    ends = [end for networks in FORBIDDEN.values() for network in networks for end in (network[0], network[-1])]
    around = [
        type(end)(int(end) + step) for end in ends for step in (-1, 0, 1) if 0 <= int(end) + step < 2**end.max_prefixlen
    ]
    written = {address: f"[{address}]:80" if address.version == 6 else f"{address}:80" for address in around}

    by_database = {
        address: await database.fetchval("SELECT understudy_host_problem($1)", target)
        for address, target in written.items()
    }

    by_proxy = {address: judge_address(str(address), address, NO_RULES) for address in written}
    assert {address for address, why in by_database.items() if why} == {
        address for address, why in by_proxy.items() if why
    }
