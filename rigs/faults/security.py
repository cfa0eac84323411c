"""Rows SE: what an attacker may try."""

import asyncio
import random
import socket
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import asyncpg
import orjson
from e2e.load import Answer, Connection
from e2e.stack import VISITS
from scipy.stats import mannwhitneyu

from rigs.faults.flood import flood
from rigs.faults.inputs import body_for, inputs_of
from rigs.faults.row import Figures, Row, Span, at_least, at_most
from rigs.faults.world import Machine, World

MARK = "zq7vmarkzq7v"
"""Part of every hostile input: no answer may repeat it."""
SECRET = "c4n4ry-key-secret-0123456789"
PASSWORD = "c4n4ry-dsn-password"
ENTITY = "c4n4ry-entity"
NAMES = ("body unknown field", "body unknown input", "raw model of 10,000")
"""Cases in which the mark is no value, but what an error has to name."""
MAX_NAME = 255
TRIES, TRIES_QUICK = 20_000, 3_000
ANSWER_SECONDS = 15.0
_RECEIVE_SECONDS = 2


_THEFTS = (
    "UPDATE ServingPolicy SET challenger_weight = 0",
    "INSERT INTO ServingPolicy (model_name) VALUES ('other')",
    "UPDATE ModelEndpoint SET target = '10.0.0.1:80'",
    "DELETE FROM ModelEndpoint",
    "DELETE FROM ModelVersion",
    "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('thief', repeat('0', 64), '{operate}')",
    "UPDATE ApiKey SET revoked_at = NULL",
    "SELECT note FROM ApiKey",
    "SELECT entity_id FROM PredictionLog LIMIT 1",
    "UPDATE PredictionLog SET score = 0",
    "DELETE FROM PredictionLog",
    "TRUNCATE PredictionLog",
    "DROP TABLE PredictionLog",
    "SELECT 1 FROM PolicyAudit LIMIT 1",
    "DELETE FROM PolicyAudit",
    "SELECT 1 FROM AlertOutbox LIMIT 1",
    "UPDATE MonitorLease SET epoch = epoch + 1",
    "CREATE TABLE thief (loot TEXT)",
    "CREATE ROLE thief",
    "COPY ServingPolicy TO PROGRAM 'true'",
    "SELECT pg_read_file('PG_VERSION')",
)
"""What an attacker with the proxy's credentials may want."""
_RIGHTS = (
    "SELECT champion_version FROM ServingPolicy",
    "SELECT target FROM ModelEndpoint",
    "SELECT sha256 FROM ApiKey",
)
"""What the proxy itself needs, as a control."""
QUOTA_BYTES = 20_000
CALM_SECONDS = 0.02


class Case(NamedTuple):
    """Bytes that are sent, head included; ``body`` is sent as a predict call when there is no ``raw``."""

    name: str
    body: bytes = b""
    raw: bytes = b""

    def repeats_too_much(self, answer: bytes) -> bool:
        """Whether an answer has more of the mark in it than the name of a field or a path, which may be told."""
        is_name = self.name in NAMES
        return answer.count(MARK.encode()) * len(MARK) > (MAX_NAME if is_name else 0)


def _hostile() -> Iterator[Case]:
    whole = orjson.loads(body_for(1))
    feature = next(iter(whole["inputs"]))

    def with_value(text: str) -> bytes:
        marked = body_for(1).decode()
        value = orjson.dumps(whole["inputs"][feature]).decode()
        return marked.replace(f'"{feature}":{value}', f'"{feature}":{text}', 1).encode()

    values = ("NaN", "Infinity", "1e400", "-1e400", '"\\ud800"', "9" * 400, "1" + "0" * 30, "null", "true", "[1]", "{}")
    for text in values:
        yield Case(f"value {text[:12]}", with_value(text))
    for name, entity in (
        ("empty", ""),
        ("256 characters", MARK + "x" * 256),
        ("NUL", MARK + "\\u0000"),
        ("surrogate", MARK + "\\ud800"),
        ("a megabyte", MARK + "x" * 1_000_000),
    ):
        yield Case(
            f"entity {name}", b'{"entity_id":"%s","inputs":%s}' % (entity.encode(), orjson.dumps(whole["inputs"]))
        )
    for name, entity_json in (("number", b"5"), ("list", b"[]"), ("null", b"null"), ("object", b'{"a":1}')):
        yield Case(f"entity {name}", b'{"entity_id":%s,"inputs":{}}' % entity_json)
    for name, body in (
        ("nothing", b""),
        ("space", b"   "),
        ("BOM", b"\xef\xbb\xbf" + body_for(1)),
        ("UTF-16", body_for(1).decode().encode("utf-16")),
        ("latin-1", b'{"entity_id":"\xe9"}'),
        ("cut", body_for(1)[:-20]),
        ("two", body_for(1) * 2),
        ("trailing comma", b'{"entity_id":"a",}'),
        ("list", b"[]"),
        ("number", b"1"),
        ("null", b"null"),
        ("string", b'"%s"' % MARK.encode()),
        ("deep lists", b"[" * 100_000),
        ("deep objects", b'{"a":' * 100_000),
        ("deep and whole", b"[" * 5_000 + b"]" * 5_000),
        ("equal keys", b'{"entity_id":"a","entity_id":"b","inputs":{}}'),
        ("unknown field", b'{"entity_id":"a","inputs":{},"%s":1}' % MARK.encode()),
        ("unknown input", b'{"entity_id":"a","inputs":{"%s":1}}' % MARK.encode()),
        ("prototype", b'{"entity_id":"a","inputs":{"__proto__":1}}'),
        ("2 MB", b" " * 2_000_000),
        ("100,000 keys", orjson.dumps({"entity_id": "a", "inputs": {f"k{n}": 1 for n in range(50_000)}})),
        ("script", b"<script>%s</script>" % MARK.encode()),
        ("SQL", b"'; DROP TABLE PredictionLog; -- %s" % MARK.encode()),
    ):
        yield Case(f"body {name}", body)
    head = f"POST {VISITS} HTTP/1.1\r\nhost: localhost\r\n".encode()
    for name, raw in (
        ("length below zero", head + b"content-length: -1\r\n\r\n"),
        ("length no number", head + b"content-length: ten\r\n\r\n"),
        ("two lengths", head + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}"),
        ("both framings", head + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("chunk no number", head + b"transfer-encoding: chunked\r\n\r\nzz\r\n"),
        ("length too long", head + b"content-length: 99999999999999999999\r\n\r\n"),
        ("gzip", head + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"),
        ("header of 1 MB", head + b"x: " + b"y" * 1_000_000 + b"\r\n\r\n"),
        ("10,000 headers", head + b"".join(b"x-%d: y\r\n" % n for n in range(10_000)) + b"\r\n"),
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9 + b"\r\n\r\n"),
        ("traversal", b"GET /../../etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ("other model", b"POST /v1/models/%2e%2e/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}"),
        (
            "model of 10,000",
            head.replace(VISITS.encode(), b"/v1/models/" + MARK.encode() * 900 + b"/predict")
            + b"content-length: 2\r\n\r\n{}",
        ),
        ("CR LF in a header", head + b"x-request-id: a\rb\r\ncontent-length: 2\r\n\r\n{}"),
        ("deadline below zero", head + b"x-request-timeout-ms: -5\r\ncontent-length: 2\r\n\r\n{}"),
        ("deadline no number", head + b"x-request-timeout-ms: 1e999\r\ncontent-length: 2\r\n\r\n{}"),
        ("trace", b"TRACE / HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ("connect", b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ("HTTP/9.9", b"GET / HTTP/9.9\r\n\r\n"),
        ("half a request", head),
    ):
        yield Case(f"raw {name}", raw=raw)


async def hostile_inputs(machine: Machine, _span: Span) -> Figures:
    async with machine.world(receive_seconds=_RECEIVE_SECONDS) as world:
        await world.serve()
        cases = list(_hostile())
        answers = {case.name: await asyncio.to_thread(_send, world.port, case) for case in cases}
        good = await Connection("127.0.0.1", world.port).post(VISITS, body_for(2))
        statuses = {name: _status(answer) for name, answer in answers.items()}
        bad = [name for name, status in statuses.items() if status >= 500 or 200 <= status < 300]
        silent = [name for name, answer in answers.items() if answer is None]
        reflected = [case.name for case in cases if case.repeats_too_much(answers[case.name] or b"")]
        if bad or silent or reflected:
            world.machine.notes.append(f"SE-01: answered {bad}, silent {silent}, reflected {reflected}")
        return {
            "cases": len(cases),
            "failed_cases": len({*bad, *silent, *reflected}),
            "status_5xx": sum(status >= 500 for status in statuses.values()),
            "alive_after": float(good.status == 200),
        }


def _send(port: int, case: Case) -> bytes | None:
    """Return what came back, empty for a closed connection; ``None`` when nothing did in time."""
    fields = f"host: localhost\r\nconnection: close\r\ncontent-length: {len(case.body)}\r\n"
    raw = case.raw or f"POST {VISITS} HTTP/1.1\r\n{fields}\r\n".encode() + case.body
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
        try:
            with suppress(ConnectionError):
                connection.sendall(raw)
            while b"\r\n\r\n" not in received and (part := connection.recv(65_536)):
                received += part
            connection.settimeout(0.2)
            with suppress(OSError):
                received += connection.recv(65_536)
        except TimeoutError:
            return None
        except ConnectionError:
            return received
    return received


def _status(answer: bytes | None) -> int:
    parts = (answer or b"").split(b" ", 2)
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


async def _add_key(world: World, key_id: str, secret: str) -> None:
    await world.sql(
        "INSERT INTO ApiKey (id, sha256, scopes) VALUES ($1, $2, $3)",
        key_id,
        sha256(secret.encode()).hexdigest(),
        ["predict", "read"],
    )


async def key_guessing(machine: Machine, span: Span) -> Figures:
    tries = TRIES_QUICK if span.during < 10 else TRIES
    async with machine.world(auth="true") as world:
        await _add_key(world, "known", SECRET)
        await world.serve()
        connection = Connection("127.0.0.1", world.port)
        near = SECRET[:-1] + "x"
        far = "x" * len(SECRET)
        draw = random.Random(2)
        seconds: dict[str, list[float]] = {near: [], far: []}
        answers: list[Answer] = []
        for _ in range(tries // 2):
            for guess in draw.sample((near, far), 2):
                answer = await connection.post(VISITS, body_for(1), f"authorization: Bearer known.{guess}\r\n")
                answers.append(answer)
                seconds[guess].append(answer.seconds)
        connection.close()
        test = mannwhitneyu(seconds[near], seconds[far])
        return {
            "tries": tries,
            "let_in": sum(answer.status != 401 for answer in answers),
            "p_value": float(test.pvalue),
        }


async def secrets_in_logs(machine: Machine, _span: Span) -> Figures:
    async with machine.world(auth="true") as world:
        plain = world.stack.database_url
        world.stack.database_url = plain.replace("@", f":{PASSWORD}@")
        await _add_key(world, "known", SECRET)
        await world.serve()
        world.start_monitor("monitor", UNDERSTUDY_ALERT_WEBHOOK_URL=f"http://127.0.0.1:1/{SECRET}")
        await asyncio.sleep(2)
        bodies = await _everything_that_fails(world)
        await asyncio.sleep(3)
        pages = [await asyncio.to_thread(_metrics_text, world)]
        await asyncio.to_thread(world.stop)
        texts = [path.read_bytes() for path in Path(world.folder).glob("*.log")] + pages + bodies
        hits = sum(text.count(canary.encode()) for text in texts for canary in (SECRET, PASSWORD, ENTITY))
        return {"texts": len(texts), "bytes_read": sum(map(len, texts)), "hits": hits}


async def stolen_credentials(machine: Machine, _span: Span) -> Figures:
    async with machine.world() as world:
        await world.serve()
        connection = await asyncpg.connect(world.stack.database_url)
        try:
            await connection.execute("SET ROLE understudy_proxy")
            allowed = [await _is_allowed(connection, statement) for statement in _THEFTS]
            needed = [await _is_allowed(connection, statement) for statement in _RIGHTS]
        finally:
            await connection.close()
        return {"tried": len(allowed), "forbidden_ops_allowed": sum(allowed), "needed_ops_refused": needed.count(False)}


async def _is_allowed(connection: asyncpg.Connection, statement: str) -> bool:
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError:
        return False
    finally:
        await transaction.rollback()
    return True


async def one_tenant_floods(machine: Machine, span: Span) -> Figures:
    async with machine.world(auth="true") as world:
        for name in ("flood", "calm"):
            await _add_key(world, name, SECRET)
        await world.sql("UPDATE ApiKey SET bytes_per_second = $1 WHERE id = 'flood'", QUOTA_BYTES)
        await world.serve()
        await _calls(world, "calm", 1.0)
        alone = await _calls(world, "calm", max(span.before, 4.0))
        seconds = max(span.during, 4.0)
        flooding = asyncio.create_task(flood(world.port, f"flood.{SECRET}", seconds))
        beside = await _calls(world, "calm", seconds)
        answered = await flooding
        return {
            "B_failed": sum(answer.status != 200 for answer in (*alone, *beside)),
            "B_p99_ms": 1000 * _p99(beside),
            "B_p99_delta_ms": 1000 * (_p99(beside) - _p99(alone)),
            "A_answered_429": answered.answered_429,
            "A_answered_otherwise": answered.answered_otherwise,
        }


async def _calls(world: World, key_id: str, seconds: float) -> Sequence[Answer]:
    """Call for so long with a key, one call after the other."""
    connection = Connection("127.0.0.1", world.port)
    answers: list[Answer] = []
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        body = body_for(len(answers))
        answers.append(await connection.post(VISITS, body, f"authorization: Bearer {key_id}.{SECRET}\r\n"))
        await asyncio.sleep(CALM_SECONDS)
    connection.close()
    return answers


def _p99(answers: Sequence[Answer]) -> float:
    seconds = sorted(answer.seconds for answer in answers)
    return seconds[int(0.99 * len(seconds))]


async def _everything_that_fails(world: World) -> list[bytes]:
    """Make calls that end badly in every way, with the canaries in them; return the bodies of those that failed."""
    connection = Connection("127.0.0.1", world.port)
    good, bad = f"authorization: Bearer known.{SECRET}\r\n", f"authorization: Bearer known.{SECRET}x\r\n"
    body = orjson.dumps({"entity_id": ENTITY, "inputs": inputs_of(5)})
    found: list[Answer] = []
    contents = (body, body[:-5], orjson.dumps({"entity_id": ENTITY, "inputs": {"log_incentive": ENTITY}}))
    for headers in (good, bad, f"authorization: {SECRET}\r\n", ""):
        found += [await connection.post(VISITS, content, headers) for content in contents]
    with world.postgres.refusing(), world.machine.model("a").link.refusing():
        for number in range(20):
            fresh = orjson.dumps({"entity_id": ENTITY, "inputs": inputs_of(1_000 + number)})
            found.append(await connection.post(VISITS, fresh, good))
            await asyncio.sleep(0.1)
    connection.close()
    return [answer.body for answer in found if answer.status >= 400]


def _metrics_text(world: World) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{world.metrics_port}/metrics", timeout=5) as answer:
        content: bytes = answer.read()
        return content


ROWS = (
    Row(
        "SE-01",
        "hostile inputs",
        "refused; values are not repeated, names are cut",
        (*at_most(failed_cases=0, status_5xx=0), *at_least(alive_after=1, cases=50)),
        hostile_inputs,
    ),
    Row(
        "SE-02",
        "keys guessed by time (20,000; quick: 3,000)",
        "compared in constant time",
        (*at_least(p_value=0.01), *at_most(let_in=0)),
        key_guessing,
    ),
    Row(
        "SE-03",
        "stolen credentials of the proxy",
        "its role may do little",
        (*at_most(forbidden_ops_allowed=0, needed_ops_refused=0), *at_least(tried=20)),
        stolen_credentials,
    ),
    Row(
        "SE-04",
        "one tenant floods",
        "429 for that one, the other one notices nothing",
        (*at_most(B_failed=0, B_p99_delta_ms=10, A_answered_otherwise=5), *at_least(A_answered_429=1)),
        one_tenant_floods,
    ),
    Row(
        "SE-05", "secrets in logs, metrics and errors", "none", (*at_most(hits=0), *at_least(texts=3)), secrets_in_logs
    ),
)
