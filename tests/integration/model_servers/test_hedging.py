"""Hedged calls against real gRPC servers: what they gain, what they cost, and whom they leave alone."""

import asyncio
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from contract.servers import MODEL_NAME, Behaviour, ModelServer, eventually, running
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.adapters._proto.methods import OIP_MODEL_INFER, OIP_SERVICE, oip_method
from understudy.adapters.model_servers.addresses import RESOLVE_SECONDS
from understudy.adapters.model_servers.connect import connect
from understudy.adapters.model_servers.replicas.hedged_call import Hedging
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.adapters.model_servers.replicas.replica_set import ReplicaSet
from understudy.core.routing.policy_document import version_from_row
from understudy.core.schema.tensors import Row
from understudy.core.upstream.hedging import HEDGE_BURST, MIN_CALLS
from understudy.errors import BackendUnavailable, DeadlineExceeded

RATIO = 0.05
LOAD_SECONDS = 5.0
"""A deadline that only a broken server misses, however busy the machine is."""
SLOW_ENOUGH_SECONDS = 0.5
"""A delay that every learned patience is far below."""


def a_row(value: float) -> Row:
    return (struct.pack("<3f", value, 0, 0),)


class Client:
    """A backend of some servers, and what became of its hedges."""

    def __init__(self, servers: Sequence[ModelServer], ratio: float, max_calls: int, **columns: Any) -> None:
        row = {
            "id": 1,
            "version": "1",
            "status": "champion",
            "protocol": "oip",
            "endpoints": [server.endpoint for server in servers],
            "input_schema": {
                "features": [{"name": name, "dtype": "float32"} for name in "abc"],
                "tensors": [{"name": "x", "dtype": "float32", "features": ["a", "b", "c"]}],
            },
            "output_schema": {"tensor": "p"},
            "backend": {},
            "deterministic": True,
            "cache_ttl_seconds": 0,
            "timeout_ms": 500,
            **columns,
        }
        self.hedges: Counter[str] = Counter()
        hedging = Hedging(ratio, max_calls, lambda outcome: self.hedges.update([outcome]))
        self.backend: Any = connect(version_from_row(MODEL_NAME, row), hedging=hedging)

    @property
    def in_flight(self) -> int:
        return int(self.backend.replicas.in_flight)

    @property
    def sent(self) -> int:
        return self.hedges["won"] + self.hedges["lost"]

    @property
    def missed(self) -> int:
        """Calls that were late and had no answer of a hedge."""
        return self.hedges["lost"] + self.hedges["refused"]

    async def ask(self, value: float = 0.0, timeout_seconds: float = LOAD_SECONDS) -> float:
        tensor = await self.backend.infer([a_row(value)], timeout_seconds)
        return float(tensor.values[0])

    async def timed(self, calls: int, callers: int) -> list[float]:
        """Return how long each of ``calls`` took, in order of length, asked by ``callers`` one after the other."""
        numbers = iter(range(calls))
        seconds: list[float] = []

        async def caller() -> None:
            for _ in numbers:
                started = time.monotonic()
                await self.ask()
                seconds.append(time.monotonic() - started)

        await asyncio.gather(*(caller() for _ in range(callers)))
        return sorted(seconds)

    async def learn(self) -> None:
        """Let it know how long both replicas take, and earn hedges; on a busy machine some are spent at once."""
        await self.timed(400, 4)
        replicas = self.backend.replicas
        async with asyncio.timeout(LOAD_SECONDS * 6):
            while replicas._hedger and not replicas._hedger.budget.allows(urgent=False):  # noqa: SLF001 - not shown
                await self.timed(40, 1)


@asynccontextmanager
async def a_client(
    *behaviours: Behaviour, ratio: float = RATIO, max_calls: int = 128, **columns: Any
) -> AsyncIterator[tuple[Client, list[ModelServer]]]:
    async with running(*behaviours) as servers:
        client = Client(servers, ratio, max_calls, **columns)
        try:
            yield client, servers
        finally:
            await client.backend.close()


def p99(seconds: Sequence[float]) -> float:
    return seconds[int(len(seconds) * 0.99)]


async def nothing_is_in_flight(client: Client) -> bool:
    async def ended() -> bool:
        return client.in_flight == 0

    return await eventually(ended, LOAD_SECONDS)


HEALTHY_SECONDS = 0.02
SLOW_SECONDS = 20 * HEALTHY_SECONDS
CALLS, CALLERS = 1_500, 12
SLOW_CALLS, HEDGED_CALLS = CALLS // 2, 2 * CALLS
"""A machine that stands still for a fraction of a second makes each caller's call late once, and the first slow calls
come before a hedge is earned: of so many calls both together are well below one in a hundred."""


def sometimes_slow(number: int) -> float:
    """Of one of two replicas: 2 % of all calls, as it has half of them."""
    return SLOW_SECONDS if number % 25 == 0 else HEALTHY_SECONDS


async def seconds_with(calls: int, *, slow: bool, ratio: float) -> tuple[list[float], int, Client]:
    delays = sometimes_slow if slow else None
    behaviours = (Behaviour(delay_seconds=HEALTHY_SECONDS, delay_of=delays), Behaviour(delay_seconds=HEALTHY_SECONDS))
    async with a_client(*behaviours, ratio=ratio) as (client, servers):
        seconds = await client.timed(calls, CALLERS)
        assert await nothing_is_in_flight(client)
        return seconds, sum(server.calls for server in servers), client


@pytest.mark.alone
async def test_slow_calls_of_one_replica_leave_the_p99_near_the_healthy_one_for_at_most_6_percent_more_calls():
    healthy, _, _ = await seconds_with(CALLS, slow=False, ratio=0.0)
    alone, calls_alone, _ = await seconds_with(SLOW_CALLS, slow=True, ratio=0.0)

    hedged, calls, client = await seconds_with(HEDGED_CALLS, slow=True, ratio=RATIO)

    print(  # noqa: T201 - the figures
        f"p99 healthy {p99(healthy) * 1e3:.1f} ms, not hedged {p99(alone) * 1e3:.1f} ms, hedged {p99(hedged) * 1e3:.1f}"
        f" ms; calls {calls / HEDGED_CALLS:.3f}; {dict(client.hedges)}"
    )
    assert calls_alone == SLOW_CALLS
    assert p99(alone) > 3 * p99(healthy)  # or the claim would hold without a hedge
    assert p99(hedged) <= 3 * p99(healthy)
    assert calls <= 1.06 * HEDGED_CALLS


async def ask_until_it_is_asked(client: Client, slow: ModelServer) -> None:
    """Call until the slow replica was the first choice; each is as likely to be it, so 40 calls are enough.

    On a busy machine the other replica is late, too: then the slow one is called as its hedge, which loses.
    """
    for number in range(40):
        calls, missed = slow.calls, client.missed
        assert await client.ask(number) == number
        if slow.calls > calls and client.missed == missed:
            return
    raise AssertionError("the replica was never asked first")


async def slow_call_with(*, ratio: float = RATIO, max_calls: int = 128, **columns: Any) -> Client:
    """Return a client whose last call met a replica that had become slow."""
    async with a_client(Behaviour(), Behaviour(), ratio=ratio, max_calls=max_calls, **columns) as (client, servers):
        await client.learn()
        client.hedges.clear()
        servers[0].behaviour.delay_seconds = SLOW_ENOUGH_SECONDS
        await ask_until_it_is_asked(client, servers[0])
        assert await nothing_is_in_flight(client)
        return client


async def test_a_call_that_is_late_is_answered_by_the_other_replica_and_cancelled_at_the_first():
    client = await slow_call_with()

    assert client.hedges["won"] >= 1


NEVER: dict[str, dict[str, Any]] = {
    "turned off": {"ratio": 0.0},
    "turned off for the version": {"backend": {"hedge": False}},
    "may answer differently each time": {"deterministic": False},
    "torchserve": {"protocol": "torchserve", "backend": {"hedge": True}},
    "as many calls in flight as may be": {"max_calls": 1},
}


@pytest.mark.parametrize("why", NEVER)
async def test_a_call_is_never_hedged_when(why: str):
    client = await slow_call_with(**NEVER[why])

    assert client.sent == 0


async def test_a_version_that_answers_differently_each_time_is_hedged_when_it_says_that_it_may_be():
    client = await slow_call_with(deterministic=False, backend={"hedge": True})

    assert client.hedges["won"] >= 1


@pytest.mark.parametrize("value", ["no", 0, None])
async def test_a_hedge_setting_that_is_neither_true_nor_false_is_refused(value: Any):
    with pytest.raises(BackendUnavailable, match=r"backend\.hedge must be true or false"):
        async with a_client(Behaviour(), Behaviour(), backend={"hedge": value}):
            pass


async def test_a_call_with_little_time_left_is_not_hedged():
    async with a_client(Behaviour(delay_seconds=0.05), Behaviour(delay_seconds=0.05), ratio=0.5) as (client, servers):
        await client.timed(80, 4)
        client.hedges.clear()
        for server in servers:
            server.behaviour.delay_seconds = SLOW_ENOUGH_SECONDS

        # The other replica would need some 0.05 s, too: at least a hedge would leave with less than that left.
        for _ in range(4):
            with pytest.raises(DeadlineExceeded):
                await client.ask(timeout_seconds=0.095)

        assert client.sent == 0


async def test_a_call_is_not_hedged_when_the_other_replica_would_not_answer_in_time():
    async with a_client(Behaviour(delay_seconds=0.005), Behaviour(delay_seconds=0.08), ratio=0.5) as (client, servers):
        await client.timed(300, 6)  # enough for the one that gets fewer of them
        assert min(server.calls for server in servers) >= MIN_CALLS
        client.hedges.clear()
        servers[0].behaviour.delay_seconds = SLOW_ENOUGH_SECONDS

        for _ in range(6):
            with suppress(DeadlineExceeded):
                await client.ask(timeout_seconds=0.06)

        assert client.sent == 0


async def test_when_every_call_is_late_the_budget_bounds_the_hedges():
    async with a_client(Behaviour(), Behaviour()) as (client, servers):
        await client.learn()
        client.hedges.clear()
        for server in servers:
            server.behaviour.delay_of = lambda number, since=server.calls: 0.01 + 0.01 * (number - since)

        await client.timed(40, 2)

        assert client.hedges["refused"] > 0
        assert client.sent <= HEDGE_BURST + 40 * RATIO


async def test_the_slower_of_both_calls_is_cancelled_at_once():
    async with a_client(Behaviour(), Behaviour(), ratio=0.5) as (client, servers):
        await client.learn()
        client.hedges.clear()

        for number in range(40):
            # In turns, so that neither is overtaken often enough to be ejected.
            servers[number % 2].behaviour.delay_seconds = 3_600
            servers[1 - number % 2].behaviour.delay_seconds = 0.1
            assert await client.ask(number) == number
            if client.hedges["won"] and client.hedges["lost"]:
                break

        assert min(client.hedges["won"], client.hedges["lost"]) > 0
        assert await nothing_is_in_flight(client)


async def test_the_only_replica_is_called_once():
    async with a_client(Behaviour()) as (client, (server,)):
        await client.learn()
        before = server.calls
        server.behaviour.delay_seconds = SLOW_ENOUGH_SECONDS

        await client.ask()

        assert (server.calls - before, client.sent) == (1, 0)


async def test_a_replica_that_drains_gets_no_hedge():
    method = oip_method(OIP_SERVICE, OIP_MODEL_INFER)
    outcomes: list[str] = []
    async with running(Behaviour(answer=b"ok"), Behaviour(answer=b"ok")) as (slow, drains):
        replicas = ReplicaSet(
            [slow.endpoint, drains.endpoint],
            Probe(method, b"", bool),
            hedging=Hedging(RATIO, 128, outcomes.append),
            draw=lambda: 0.0,  # the first one whenever both are equally busy
        )

        async def is_left() -> bool:
            return not replicas._replicas[1].is_connected  # noqa: SLF001 - not shown

        for _ in range(100):
            await asyncio.gather(*(replicas.call(method, b"", LOAD_SECONDS) for _ in range(4)))
        async with asyncio.timeout(LOAD_SECONDS * 6):
            while replicas._hedger and not replicas._hedger.budget.allows(urgent=False):  # noqa: SLF001 - as in Client.learn
                await replicas.call(method, b"", LOAD_SECONDS)
        slow.behaviour.delay_seconds = SLOW_ENOUGH_SECONDS
        outcomes.clear()

        await replicas.call(method, b"", LOAD_SECONDS)
        before = outcomes.copy()
        await drains.stop()  # it has no call, so its connection ends without an error
        assert await eventually(is_left, LOAD_SECONDS)
        await replicas.call(method, b"", LOAD_SECONDS)
        await replicas.close()

    assert before == ["won"]
    assert outcomes == before


@asynccontextmanager
async def no_name_found() -> AsyncIterator[None]:
    """No name is looked up until the end: each thread that could do it waits."""
    loop, over = asyncio.get_running_loop(), threading.Event()
    waiting = [loop.run_in_executor(None, over.wait) for _ in range(64)]
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*waiting)


async def test_a_hedges_answer_is_not_lost_while_the_first_endpoint_is_being_resolved():
    method = oip_method(OIP_SERVICE, OIP_MODEL_INFER)
    outcomes: list[str] = []
    async with running(Behaviour(answer=b"ok"), Behaviour(answer=b"ok")) as (moves, stays):
        replicas = ReplicaSet(
            [f"localhost:{moves.port}", stays.endpoint],
            Probe(method, b"", bool),
            hedging=Hedging(RATIO, 128, outcomes.append),
            draw=lambda: 0.0,  # the first one whenever both are equally busy
        )
        for _ in range(100):
            await asyncio.gather(*(replicas.call(method, b"", LOAD_SECONDS) for _ in range(4)))
        async with asyncio.timeout(LOAD_SECONDS * 6):
            while replicas._hedger and not replicas._hedger.budget.allows(urgent=False):  # noqa: SLF001 - as in Client.learn
                await replicas.call(method, b"", LOAD_SECONDS)
        outcomes.clear()
        replicas._replicas[0].is_open = False  # noqa: SLF001 - as after a connection that broke
        before = stays.calls

        async with no_name_found():
            answer = await replicas.call(method, b"", RESOLVE_SECONDS / 2)
            in_flight = replicas.in_flight
        again = await replicas.call(method, b"", LOAD_SECONDS)
        await replicas.close()

    assert (answer, outcomes[0], stays.calls > before, in_flight) == (b"ok", "won", True, 0)
    assert again == b"ok"


async def test_a_replica_that_hangs_is_ejected_before_any_caller_meets_a_deadline():
    async with a_client(Behaviour(), Behaviour()) as (client, (hangs, _)):
        await client.learn()
        hangs.behaviour.delay_seconds, hangs.behaviour.probes_hang = 3_600, True

        while client.backend.replicas.ejected == 0:
            await client.ask()

        assert client.hedges["won"] >= 5
        assert await nothing_is_in_flight(client)


async def test_when_the_first_replica_fails_its_call_rests_on_the_hedge_and_is_not_repeated():
    async with a_client(Behaviour(), Behaviour()) as (client, (fails, slow)):
        await client.learn()
        client.hedges.clear()
        fails.behaviour.delay_seconds, fails.behaviour.code = SLOW_ENOUGH_SECONDS / 2, grpc.StatusCode.UNAVAILABLE
        slow.behaviour.delay_seconds = SLOW_ENOUGH_SECONDS
        before = slow.calls

        for number in range(1, 40):
            assert await client.ask() == 0
            assert slow.calls - before == number
            if client.hedges["won"]:
                break

        assert client.hedges["won"] == 1


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.002, 0.02, 0.08]), min_size=1, max_size=30),
    st.lists(st.sampled_from([None, None, None, 0.0, 0.005, 0.03]), min_size=1, max_size=60),
    st.integers(1, 12),
)
def test_each_caller_gets_exactly_its_own_answer_and_nothing_stays_in_flight(delays, patiences, at_once):
    async def scenario() -> None:
        async with a_client(Behaviour(), Behaviour(), ratio=0.5) as (client, servers):
            await client.timed(100, 4)
            for server in servers:
                server.behaviour.delay_of = lambda number: delays[number % len(delays)]
            free = asyncio.Semaphore(at_once)
            answers: list[float] = []
            given_up = 0

            async def caller(number: int, patience: float | None) -> None:
                nonlocal given_up
                async with free:
                    try:
                        async with asyncio.timeout(patience):
                            answer = await client.ask(number)
                    except TimeoutError:
                        given_up += 1
                    else:
                        assert answer == number
                        answers.append(answer)

            await asyncio.gather(*(caller(number, patience) for number, patience in enumerate(patiences)))

            assert len(set(answers)) == len(answers) == len(patiences) - given_up
            assert given_up <= sum(patience is not None for patience in patiences)
            assert await nothing_is_in_flight(client)
            assert sum(client.hedges.values()) <= 100 + len(patiences)
            assert client.sent <= 0.5 * (100 + len(patiences))

    asyncio.run(scenario())
