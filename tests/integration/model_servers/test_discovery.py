"""A name that is as many replicas as it has addresses: real servers come and go in its answer, and no call fails."""

import asyncio
import socket
from pathlib import Path

import grpc
import pytest
from contract.http_server import HttpModelServer
from contract.servers import ModelServer, eventually
from loopback.certificates import Authority
from structlog.testing import capture_logs
from worlds.named_servers import NAME, NamedServers, a_row, calling, named_servers, named_version

from understudy.adapters.memory.tracing import MemoryTracer
from understudy.adapters.model_servers.connect import connect
from understudy.adapters.model_servers.replicas.draining_replicas import GRACE_SECONDS, LOOK_SECONDS
from understudy.core.upstream.discovered import MAX_DISCOVERED
from understudy.core.upstream.endpoint_rules import parse_rules
from understudy.errors import BackendUnavailable
from understudy.ports.telemetry.tracing import within

SOON = 10.0
CLIENTS = ["asyncio", "grpcio"]


async def has_calls(named: NamedServers, *numbers: int, more: int = 20) -> bool:
    """Whether these servers, counted from 1, get ``more`` calls each from now on."""
    before = named.calls

    async def all_have() -> bool:
        return all(named.calls[number - 1] >= before[number - 1] + more for number in numbers)

    return await eventually(all_have, SOON)


async def was_asked_again(named: NamedServers, times: int = 2) -> None:
    """Wait until an answer that was given after this call has come to the replicas."""
    before = named.resolver.questions

    async def is_asked() -> bool:
        return named.resolver.questions >= before + times

    assert await eventually(is_asked, SOON)


@pytest.mark.parametrize("client", CLIENTS)
async def test_each_address_of_a_name_is_a_replica_and_calls_are_spread_over_all(client):
    async with named_servers() as named, calling(named, grpc_client=client) as caller:
        await caller.ask()
        async with caller.load():
            assert await has_calls(named, 1, 2, 3, more=1)
            before = named.calls
            assert await has_calls(named, 1, 2, 3, more=200)
            shares = [after - earlier for after, earlier in zip(named.calls, before, strict=True)]

        assert caller.replicas.known == 3
        assert caller.problems == []
        assert min(shares) * 2 > max(shares)


@pytest.mark.parametrize("client", CLIENTS)
async def test_servers_come_and_go_in_the_names_answer_under_load_and_no_call_fails(client):
    async with named_servers() as named, calling(named, grpc_client=client) as caller:
        named.lead_to(1)
        async with caller.load():
            assert await has_calls(named, 1)
            for numbers in ([1, 2], [2, 3], [3], [1, 2, 3], [1], [2], [1, 2, 3]):
                named.lead_to(*numbers)
                assert await has_calls(named, *numbers)

        assert caller.problems == []
        assert caller.answered > 100


async def test_what_stays_keeps_its_connection_and_what_left_gets_no_call():
    async with named_servers() as named, calling(named) as caller:
        named.lead_to(1, 2)
        async with caller.load():
            assert await has_calls(named, 1, 2)
            named.lead_to(2, 3)
            assert await has_calls(named, 3)
            left_with = named.calls[0]
            assert await has_calls(named, 2, 3)
            assert named.calls[0] == left_with
            named.lead_to(1, 2)
            assert await has_calls(named, 1)

        assert [len(server.callers) for server in named.servers] == [2, 1, 1]
        assert caller.problems == []


async def test_a_call_under_way_ends_by_itself_after_its_address_has_left():
    async with named_servers(2) as named, calling(named) as caller:
        named.lead_to(1)
        await caller.ask()
        named.servers[0].behaviour.delay_seconds = 2 * (GRACE_SECONDS + LOOK_SECONDS)
        slow = asyncio.create_task(caller.ask(7.0))

        async def is_under_way() -> bool:
            return named.calls[0] == 2

        assert await eventually(is_under_way, SOON)
        named.lead_to(2)
        await was_asked_again(named)

        assert [await caller.ask() for _ in range(5)] == [0.0] * 5
        assert named.calls == [2, 5]
        assert caller.replicas.in_flight == 1
        assert not slow.done()
        assert await slow == 7.0


async def test_an_address_where_nothing_listens_gets_no_call_of_a_caller():
    async with named_servers() as named, calling(named) as caller:
        named.lead_to(1)
        await caller.ask()
        await named.servers[2].stop()
        async with caller.load():
            named.lead_to(1, 2, 3)
            assert await has_calls(named, 1, 2)

        assert caller.problems == []
        assert caller.replicas.known == 3
        assert caller.replicas.ejected == 1


async def test_an_address_that_takes_connections_and_says_nothing_gets_no_call_of_a_caller():
    async with named_servers() as named, calling(named) as caller:
        named.lead_to(1)
        await caller.ask()
        await named.servers[2].stop()
        with socket.create_server(("127.0.0.3", named.port)):
            async with caller.load():
                named.lead_to(1, 2, 3)
                assert await has_calls(named, 1, 2, more=100)

            assert caller.problems == []
            assert caller.replicas.ejected == 1


async def test_an_address_that_dies_is_ejected_and_comes_back_by_itself():
    async with named_servers() as named, calling(named) as caller:
        async with caller.load():
            assert await has_calls(named, 1, 2, 3)
            await named.servers[1].stop()

            async def is_ejected() -> bool:
                return caller.replicas.ejected == 1

            assert await eventually(is_ejected, SOON)
            assert await has_calls(named, 1, 3)
            await named.servers[1].start(f"127.0.0.2:{named.port}")
            assert await has_calls(named, 2)

        assert caller.problems == []


async def test_a_version_whose_addresses_are_all_others_goes_on_at_once():
    async with named_servers(2) as named, calling(named) as caller:
        named.lead_to(1)
        await caller.ask()
        named.lead_to(2)

        async def is_at_the_other() -> bool:
            await caller.ask()
            return named.calls[1] > 0

        assert await eventually(is_at_the_other, SOON)


async def test_a_lost_server_has_its_name_asked_for_at_once_and_not_an_interval_later():
    async with named_servers(2) as named:
        named.lead_to(1)
        slow = named.discovery._replace(interval_seconds=3_600)
        backend = connect(named_version(named.port), discovery=slow)
        try:
            assert await backend.ready(SOON)
            named.lead_to(2)
            await named.servers[0].stop()

            async def is_ready() -> bool:
                return await backend.ready(1.0)

            assert await eventually(is_ready, SOON)
        finally:
            await backend.close()


async def test_a_resolver_that_fails_leaves_the_last_addresses_and_is_told_once_and_counted():
    async with named_servers() as named, calling(named) as caller:
        async with caller.load():
            assert await has_calls(named, 1, 2, 3)
            with capture_logs() as logs:
                named.fail()

                async def has_failed_often() -> bool:
                    return named.failures >= 5

                assert await eventually(has_failed_often, SOON)
                assert await has_calls(named, 1, 2, 3)
                named.resolver.names[NAME] = []
                failures = named.failures

                async def has_failed_again() -> bool:
                    return named.failures >= failures + 3

                assert await eventually(has_failed_again, SOON)
                assert caller.replicas.known == 3
                named.lead_to(1)
                assert await has_calls(named, 1)

        assert caller.problems == []
        told = [entry["event"] for entry in logs if entry["event"].startswith("endpoint_discovery.")]
        assert told[:2] == ["endpoint_discovery.away", "endpoint_discovery.back"]
        away = next(entry for entry in logs if entry["event"] == "endpoint_discovery.away")
        assert f"{NAME}:{named.port} cannot be resolved: Name or service not known" in away["problem"]
        assert away["still_works"] == "calls to its last 3 addresses"


async def test_a_name_that_was_never_resolved_fails_in_words_and_serves_once_it_is():
    async with named_servers() as named, calling(named) as caller:
        named.fail()

        with pytest.raises(BackendUnavailable, match="one of its endpoints has no permitted address"):
            await caller.ask()

        (seen,) = await caller.replicas.examine(1.0)
        assert "cannot be resolved: Name or service not known" in seen.problem
        assert named.failures > 0
        named.lead_to(1, 2, 3)

        async def answers() -> bool:
            try:
                return await caller.ask(3.0) == 3.0
            except BackendUnavailable:
                return False

        assert await eventually(answers, SOON)
        assert caller.replicas.known == 3


async def test_an_answer_with_an_address_that_is_forbidden_is_not_taken():
    async with named_servers(2) as named, calling(named) as caller:
        named.lead_to(1)
        await caller.ask()
        with capture_logs() as logs:
            named.resolver.names[NAME] = ["127.0.0.2", "169.254.169.254"]

            async def has_failed() -> bool:
                return named.failures > 1

            assert await eventually(has_failed, SOON)

        await caller.ask()
        assert caller.replicas.known == 1
        assert named.calls[1] == 0
        away = next(entry for entry in logs if entry["event"] == "endpoint_discovery.away")
        assert "is refused: 169.254.169.254 is link-local" in away["problem"]


async def test_a_name_that_comes_to_lead_to_this_machine_is_refused_at_that_answer():
    name = "models.example"
    async with named_servers(2) as named:
        named.resolver.names[name] = ["127.0.0.1"]
        version = named_version(named.port, name)
        rebound = connect(version, discovery=named.discovery)
        listed = connect(version, discovery=named.discovery, rules=parse_rules("127.0.0.1"))
        try:
            assert not await rebound.ready(1.0)
            assert named.calls == [0, 0]
            assert await listed.ready(SOON)
            named.resolver.names[name] = ["127.0.0.1", "127.0.0.2"]
            before = named.failures

            async def was_refused() -> bool:
                return named.failures > before

            assert await eventually(was_refused, SOON)
            assert await listed.ready(SOON)
            assert listed.replicas.known == 1  # type: ignore[attr-defined]
        finally:
            await rebound.close()
            await listed.close()


async def test_a_name_with_very_many_addresses_is_bounded_and_told_once():
    async with named_servers(1) as named, calling(named) as caller:
        await caller.ask()
        with capture_logs() as logs:
            named.lead_to(1)
            named.resolver.names[NAME] += [f"127.1.{part}.1" for part in range(200)]
            named.resolver.names[NAME] += [f"127.2.{part}.1" for part in range(100)]
            await was_asked_again(named, 4)

        assert caller.replicas.known == MAX_DISCOVERED
        (told,) = [entry for entry in logs if entry["event"] == "endpoint_discovery.bounded"]
        assert (told["addresses"], told["used"]) == (301, MAX_DISCOVERED)
        await caller.ask()


async def test_each_server_is_examined_by_its_address():
    async with named_servers() as named, calling(named) as caller:
        await named.servers[2].stop()

        seen = await caller.replicas.examine(2.0)

        endpoint = f"{NAME}:{named.port}"
        assert [one.place for one in seen] == [f"{endpoint} at 127.0.0.{number}" for number in (1, 2, 3)]
        assert [bool(one.problem) for one in seen] == [False, False, True]


async def test_without_the_setting_a_name_is_one_replica_and_its_resolver_is_not_asked():
    async with named_servers() as named:
        version = named_version(named.port, "localhost", backend={"discover": False})
        async with calling(named, version) as caller:
            await caller.ask()

            assert caller.replicas.known == 1
            assert named.resolver.questions == 0


async def test_an_endpoint_that_is_an_address_stays_one_replica():
    async with named_servers() as named, calling(named, named_version(named.port, "127.0.0.2")) as caller:
        await caller.ask()

        assert named.calls == [0, 1, 0]
        assert named.resolver.questions == 0


async def test_a_setting_that_is_no_truth_value_is_refused_in_words():
    version = named_version(1, backend={"discover": "dns"})

    with pytest.raises(BackendUnavailable, match=r"backend\.discover must be true or false"):
        connect(version)


async def test_no_task_is_left_when_a_version_is_closed_while_its_name_is_asked_for():
    async with named_servers() as named:
        before = asyncio.all_tasks()
        async with calling(named) as caller:
            await caller.ask()
            named.lead_to(1)

            async def has_one() -> bool:
                return caller.replicas.known == 1

            assert await eventually(has_one, SOON)

        assert asyncio.all_tasks() <= before


async def test_a_trace_says_which_address_of_the_name_a_call_went_to():
    tracer = MemoryTracer()
    async with named_servers(2) as named, calling(named) as caller:
        named.lead_to(2)
        call = tracer.receive("call", None, {})
        with within(call):
            await caller.ask()
        call.end()

    (attempt,) = [span for span in tracer.ended if span.kind == "client"]
    assert attempt.attributes["server.address"] == NAME
    assert attempt.attributes["network.peer.address"] == "127.0.0.2"


# -- HTTP, and TLS -----------------------------------------------------------------------------------------------------


async def test_addresses_of_a_name_are_replicas_over_http_too_and_the_host_is_the_name():
    servers = [HttpModelServer()]
    await servers[0].start()
    servers.append(HttpModelServer(host="127.0.0.2", port=servers[0].port))
    await servers[1].start()
    named = NamedServers([ModelServer(port=servers[0].port)] * 2)
    version = named_version(servers[0].port, protocol="oip-http")
    try:
        async with calling(named, version) as caller, caller.load(2):

            async def have_calls() -> bool:
                return all(server.calls > 20 for server in servers)

            assert await eventually(have_calls, SOON)
            named.lead_to(2)
            await was_asked_again(named)
            before = servers[1].calls

            async def has_more() -> bool:
                return servers[1].calls > before + 20

            assert await eventually(has_more, SOON)
        assert caller.problems == []
        hosts = {
            line for server in servers for head in server.heads for line in head.split(b"\r\n") if b"host:" in line
        }
        assert hosts == {f"host: {NAME}:{servers[0].port}".encode()}
    finally:
        for server in servers:
            await server.stop()


async def test_the_certificate_of_each_address_must_be_for_the_name(tmp_path: Path):
    authority = Authority(tmp_path)

    def credentials(name: str) -> grpc.ServerCredentials:
        made = authority.sign(name)
        return grpc.ssl_server_credentials([(made.key.read_bytes(), made.cert.read_bytes())])

    servers = [ModelServer() for _ in range(3)]
    try:
        await servers[0].start("127.0.0.1:0", credentials(NAME))
        await servers[1].start(f"127.0.0.2:{servers[0].port}", credentials(NAME))
        await servers[2].start(f"127.0.0.3:{servers[0].port}", credentials("127.0.0.3"))
        named = NamedServers(servers)
        version = named_version(named.port, backend={"tls": True})
        async with calling(named, version, ca_file=authority.ca) as caller:
            async with caller.load():
                assert await has_calls(named, 1, 2)
            assert caller.problems == []
            assert named.calls[2] == 0
            seen = await caller.replicas.examine(2.0)

        assert [one.problem for one in seen] == ["", "", "its certificate is for another host name"]
    finally:
        for server in servers:
            await server.stop()


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_name_server_that_hangs_holds_up_no_call(client):
    async with named_servers() as named:
        answers = asyncio.Event()

        class Hanging:
            """Answers once, and then not before it may."""

            asked = 0

            async def addresses(self, target: object) -> object:
                self.asked += 1
                if self.asked > 1:
                    await answers.wait()
                return await named.resolver.addresses(target)  # type: ignore[arg-type]

        resolver = Hanging()
        discovery = named.discovery._replace(resolver=resolver)  # type: ignore[arg-type]
        backend = connect(named_version(named.port), discovery=discovery, grpc_client=client)
        try:
            await backend.infer([a_row()], 5.0)

            async def hangs() -> bool:
                return resolver.asked > 1

            assert await eventually(hangs, SOON)
            for _ in range(50):
                await backend.infer([a_row()], 5.0)
            assert resolver.asked == 2
        finally:
            answers.set()
            await backend.close()
