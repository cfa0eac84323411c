"""Both clients against a real proxy, and against servers that are in trouble."""

import asyncio
import inspect
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from uuid import UUID

import numpy as np
import orjson
import pandas as pd
import polars as pl
import pytest
from e2e.stack import a_stack, register, sql

from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.client import AsyncClient, Client, Entity, Outcome, ProxyAway, Retries, Treatment
from understudy.errors import DeadlineExceeded, InputInvalid, Overloaded, ScopeMissing, Unauthenticated, UnknownModel

Script = tuple[int, dict[str, str], bytes]
"""An answer: status, headers, body; status 0 is none."""
ROWS = example_rows("visits")
DANA = Entity("customer-42", ROWS[42].inputs)
OFFERED = "log_incentive"
"""The feature that each treatment has a value of; in a predict call it is one of the inputs."""


class Awaited:
    """The client that is awaited, as the other one is used: its methods run in an event loop of their own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = AsyncClient(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return lambda *arguments, **options: self._loop.run_until_complete(method(*arguments, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


@pytest.fixture(params=[Client, Awaited], ids=["sync", "async"])
def opened(request: pytest.FixtureRequest) -> Any:
    return request.param


async def prepare(database_url: str, port: int) -> None:
    schema = example_version("visits", 1).input_schema
    features = [{**one, "per": "treatment"} if one["name"] == OFFERED else one for one in schema["features"]]
    ranking = orjson.dumps({**schema, "features": features}).decode()
    version = await register(database_url, 1, [port], input_schema=ranking)
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)
    scopes = {"shop": ["predict", "read", "outcomes"], "reader": ["read"]}
    for name, granted in scopes.items():
        digest = sha256(b"secret").hexdigest()
        await sql(database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ($1, $2, $3)", name, digest, granted)


@pytest.fixture
def proxy_url(database_url: str, model_port, tmp_path) -> Iterator[str]:
    asyncio.run(prepare(database_url, model_port("visits:1")))
    with a_stack(tmp_path, database_url) as stack:
        yield f"http://127.0.0.1:{stack.start_proxy(auth=True)}"


def test_a_caller_predicts_ranks_asks_why_and_says_what_happened(proxy_url, database_url, model_port):
    named: list[tuple[tuple[str, str], ...]] = []
    for opened in (Client, Awaited):
        with opened(proxy_url, "shop.secret") as client:
            one = client.predict("visits", DANA)
            many = client.predict_batch("visits", [*(Entity(f"e-{n}", ROWS[0].inputs) for n in range(300)), Entity("")])
            receipt = client.receipt("visits", "customer-42")
            own = ROWS[42].inputs
            asked = Entity("customer-42", {name: value for name, value in own.items() if name != OFFERED})
            offers = [Treatment("none", {OFFERED: 0.0}), Treatment("as it is", {OFFERED: own[OFFERED]})]
            ranked, best = client.rank("visits", asked, offers), client.rank("visits", asked, offers, top_k=1)
            bought = Outcome(f"order-{opened.__name__}", "visits", "converted", 1, datetime.now(UTC), "customer-42",
                             one.prediction_id)  # fmt: skip
            stored, again = client.send_outcomes([bought]), client.send_outcomes([bought])

            assert one.score == pytest.approx(0.8438902)
            assert (one.version, one.role, one.model, len(one.prediction_id)) == ("1", "champion", "visits", 36)
            assert (len(many.members), many.failed) == (301, 1)
            assert many.members[299].prediction is not None
            assert many.members[299].prediction.entity_id == "e-299"
            assert ranked.scores is not None
            assert ranked.scores[1] == pytest.approx(one.score)
            assert best.best == ((offers[ranked.scores.index(max(ranked.scores))].id, max(ranked.scores)),)
            assert (receipt.version, receipt.reason, receipt.entity_id) == ("1", "bucket", "customer-42")
            assert (stored[:2], again) == ((1, 0), (0, 1, ()))
            named.append(stored.new_metrics)
            with pytest.raises(InputInvalid) as wrong:
                client.predict("visits", Entity("e", {"x": 1}))
            assert "\n  /inputs/x: " in str(wrong.value)
            assert "/inputs/x" in {place.pointer for place in wrong.value.violations}
            with pytest.raises(UnknownModel):
                client.predict("nothing", DANA)
            with pytest.raises(ScopeMissing):
                client.predict("visits", DANA, version="1")
        with opened(proxy_url, "shop.wrong") as stranger, pytest.raises(Unauthenticated):
            stranger.predict("visits", DANA)
    assert named == [(("visits", "converted"),), ()]


def test_what_a_notebook_holds_is_answered_as_the_same_mappings_are(proxy_url, model_port, database_url):
    frame = pd.DataFrame([row.inputs for row in ROWS[:5]])
    named = frame.assign(entity_id=range(5))
    now = pd.Timestamp.now("UTC")
    for opened in (Client, Awaited):
        with opened(proxy_url, "shop.secret") as client:
            one = client.predict("visits", Entity("0", ROWS[0].inputs))
            rows = [frame.iloc[0], frame.head(1), pl.from_pandas(frame).head(1), dict(frame.iloc[0])]
            scores = [client.predict("visits", Entity(0, row)).score for row in rows]
            batches = [client.predict_batch("visits", table).predictions() for table in (named, pl.from_pandas(named))]
            came = pd.DataFrame({
                "event_id": [UUID(int=n + 10 * len(opened.__name__)) for n in range(2)], "model": "visits",
                "name": "came", "value": np.array([1, 0]), "occurred_at": now, "entity_id": [0, 1],
            })  # fmt: skip
            stored = client.send_outcomes(came)

            assert scores == [one.score] * 4
            assert [[each.entity_id for each in batch] for batch in batches] == [["0", "1", "2", "3", "4"]] * 2
            assert [batch[0].score for batch in batches] == [pytest.approx(one.score)] * 2
            assert (stored.new, stored.known) == (2, 0)


class InTrouble(BaseHTTPRequestHandler):
    """Answers as its server's list says, one entry a request, and the last one from then on."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append(int(self.headers["x-request-timeout-ms"]))
        status, headers, body = self.server.script[min(len(self.server.seen), len(self.server.script)) - 1]
        if status == 0:
            self.server.released.wait(20)
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: list[Script]) -> None:
        super().__init__(("127.0.0.1", 0), InTrouble)
        self.script = script
        self.seen: list[int] = []
        self.released = threading.Event()


@contextmanager
def in_trouble(*script: Script) -> Iterator[Server]:
    server = Server(list(script))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


FULL: Script = (503, {"retry-after": "3"}, b'{"code": "E507", "detail": "full", "next": "wait"}')
GOOD: Script = (200, {}, json.dumps({
    "prediction": {"score": 0.5}, "model": "m", "version": "1", "role": "champion", "prediction_id": "p",
    "generation": 1,
}).encode())  # fmt: skip
HANGS: Script = (0, {}, b"")


@contextmanager
def recording(opened: Any, url: str, **options: Any) -> Iterator[tuple[Any, list[float]]]:
    waits: list[float] = []

    async def waited(seconds: float) -> None:
        waits.append(seconds)

    with opened(url, sleep=waited if opened is Awaited else waits.append, **options) as client:
        yield client, waits


def test_a_call_is_made_again_when_the_server_says_so(opened):
    with in_trouble(FULL, FULL, GOOD) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        with recording(opened, url, timeout_seconds=30.0) as (client, waits):
            assert client.predict("m", Entity("e")).score == 0.5

    assert [3.0 <= seconds <= 3.75 for seconds in waits] == [True, True]
    assert len(server.seen) == 3
    assert server.seen == sorted(server.seen, reverse=True), "the proxy is told what is left"


def test_a_call_ends_with_the_servers_problem_when_no_attempt_is_left_or_no_time(opened):
    with in_trouble(FULL) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        with recording(opened, url, timeout_seconds=2.0) as (client, waits), pytest.raises(Overloaded):
            client.predict("m", Entity("e"))
        with recording(opened, url, retries=Retries(attempts=2)) as (client, more), pytest.raises(Overloaded):
            client.predict("m", Entity("e"))

    assert (len(waits), len(more), len(server.seen)) == (0, 1, 3)


def test_a_server_that_hangs_costs_the_callers_time_and_no_more(opened):
    with (
        in_trouble(HANGS) as server,
        opened(f"http://127.0.0.1:{server.server_port}") as client,
        pytest.raises(
            DeadlineExceeded, match=r"^\d+ ms were allowed; time ran out.*: POST http://.*/predict has"
        ) as late,
    ):
        client.predict("m", Entity("e"), timeout_seconds=0.2)

    assert "timeout_seconds" in late.value.next_step
    assert len(server.seen) == 1
    assert 0 < server.seen[0] <= 190, "the answer has its way back"


def test_of_a_batch_with_an_input_that_has_no_form_nothing_is_sent(opened):
    entities = [Entity(str(number), {"x": 1}) for number in range(599)]

    with in_trouble(GOOD) as server, opened(f"http://127.0.0.1:{server.server_port}") as client:
        with pytest.raises(TypeError, match="/entities/599/inputs/x: expected text, a number"):
            client.predict_batch("m", [*entities, Entity("e", {"x": pd.Timedelta(1)})])

        assert server.seen == []


def test_no_call_is_made_when_the_callers_time_is_over_before_it(opened):
    with in_trouble(GOOD) as server, opened(f"http://127.0.0.1:{server.server_port}") as client:
        with pytest.raises(DeadlineExceeded, match="before the call, so none was made"):
            client.predict("m", Entity("e"), timeout_seconds=-0.5)

        assert server.seen == []


def test_a_server_that_is_not_there_is_tried_again_and_named(opened):
    url = f"http://127.0.0.1:{free_port()}"
    with recording(opened, url) as (client, waits), pytest.raises(ProxyAway) as away:
        client.receipt("m", "customer-42")

    assert len(waits) == 2
    assert re.match(
        rf"GET {url}/v1/models/m/assignment: no proxy answers: .* \(3 attempts in [\d.]+ s\)", str(away.value)
    )
    assert "customer-42" not in str(away.value), "ids of persons are in no text that is logged"
    assert away.value.next_step in str(away.value)


def test_a_server_that_is_no_proxy_is_named(opened):
    with in_trouble((404, {"content-type": "text/html"}, b"<html>")) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        with (
            opened(url) as client,
            pytest.raises(ProxyAway, match=f"POST {url}/v1/models/m/predict: the server"),
        ):
            client.predict("m", Entity("e"))


def test_an_answer_of_another_form_names_its_server(opened):
    with in_trouble(GOOD) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        with (
            opened(url) as client,
            pytest.raises(ProxyAway, match=f"{url}: .* another form .KeyError: 'predi"),
        ):
            client.predict_batch("m", [Entity("e")])


def test_a_client_of_one_event_loop_says_so_in_another():
    with in_trouble(GOOD) as server:
        client = AsyncClient(f"http://127.0.0.1:{server.server_port}")

        async def asked() -> float | None:
            return (await client.predict("m", Entity("e"))).score

        async def asked_and_closed() -> float | None:
            try:
                return await asked()
            finally:
                await client.close()

        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(asked()) == 0.5
        with pytest.raises(RuntimeError, match="another event loop: make one in each"):
            asyncio.run(asked())
        assert loop.run_until_complete(asked_and_closed()) == 0.5
        loop.close()


def test_both_clients_have_the_same_methods_and_arguments():
    def signatures(client: type) -> dict[str, Any]:
        methods = inspect.getmembers(client, inspect.isfunction)
        return {name: inspect.signature(method) for name, method in methods if not name.startswith("_")}

    assert signatures(Client) == signatures(AsyncClient)
