"""TLS on every wire, with real servers: the right authority and name are let in, a wrong one is refused in words."""

import asyncio
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import grpc.aio
import httpx2
import pytest
from builders import a_version
from e2e.stack import a_stack
from loopback.certificates import Authority, Certificate
from traffic.cached_values import value_in
from traffic.clusters import put_new_cluster

from understudy.adapters import migrations
from understudy.adapters.embedded.installations import Installation, find_installations
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.model_servers.connect import connect, replicas_of
from understudy.adapters.postgres.connections.connection import connect as connect_postgres
from understudy.adapters.redis.cache import RedisCache
from understudy.adapters.redis.checkup import examine_redis
from understudy.errors import BackendUnavailable, RegistryUnavailable

CA = "UNDERSTUDY_BACKEND_CA"
METHOD = "/test.Echo/Echo"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody's server has a certificate of."""
    return Authority(tmp_path_factory.mktemp("stranger"))


# -- Postgres ----------------------------------------------------------------------------------------------------------


def speaks_tls(installation: Installation) -> bool:
    found = subprocess.run(
        [installation.binary("pg_config"), "--configure"], capture_output=True, text=True, check=False
    )
    return "openssl" in found.stdout


@pytest.fixture
def tls_postgres(authority: Authority, short_path: Path) -> Iterator[str]:
    """A server that answers over TLS only, as ``localhost``; yields ``host:port/database`` with a user before it."""
    installations = [found for found in find_installations() if speaks_tls(found)]
    if not installations:
        pytest.skip("no Postgres on this machine speaks TLS")
    put_new_cluster(short_path / "pg", installations)
    server = EmbeddedPostgres(short_path / "pg", installations=installations)
    server.start()
    folder = short_path / "pg"
    data = next(folder.rglob("pg_hba.conf")).parent
    made = authority.sign("localhost")
    owner = data.stat()
    for source, name in ((made.cert, "server.crt"), (made.key, "server.key")):
        shutil.copy(source, data / name)
        os.chown(data / name, owner.st_uid, owner.st_gid)
        (data / name).chmod(0o600)
    url = server.url
    try:
        asyncio.run(_require_tls(url, data))
        yield urlsplit(url)._replace(netloc=urlsplit(url).netloc.replace("127.0.0.1", "{host}")).geturl()
    finally:
        server.remove()


async def _require_tls(url: str, data: Path) -> None:
    connection = await connect_postgres(url, timeout_seconds=10, application_name="test")
    await connection.execute("ALTER SYSTEM SET ssl = on")
    (data / "pg_hba.conf").write_text("local all all trust\nhostssl all all all trust\n")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close(timeout=5)


async def test_postgres_is_reached_with_its_authority_and_name_and_refused_otherwise(tls_postgres, authority, stranger):
    right, by_address = tls_postgres.format(host="localhost"), tls_postgres.format(host="127.0.0.1")
    full = f"?sslmode=verify-full&sslrootcert={authority.ca}"

    revision = await migrations.upgrade(right + full)
    connection = await connect_postgres(right + full, timeout_seconds=10, application_name="test")
    version = await connection.fetchval("SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    await connection.close(timeout=5)

    assert (revision, version[:3]) == (migrations.head(), "TLS")
    refusals = {
        f"{right}?sslmode=verify-full&sslrootcert={stranger.ca}": "certificate verify failed",
        f"{by_address}{full}": "IP address mismatch|not valid for",
        f"{right}?sslmode=disable": "no encryption|pg_hba",
        f"{right}?sslmode=verify-full&sslrootcert=/nowhere/ca.pem": "sslrootcert",
    }
    for url, why in refusals.items():
        with pytest.raises(RegistryUnavailable, match=f"(?i){why}"):
            await connect_postgres(url, timeout_seconds=10, application_name="test")


# -- Redis -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def behind_tls(port: int, made: Certificate) -> AsyncIterator[int]:
    """Something that speaks TLS in front of a port; yields its own port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, there_writer), pass_on(there_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_the_shared_cache_is_reached_with_its_authority_and_name_and_only_missed_otherwise(
    authority, stranger, valkey_url
):
    async with behind_tls(urlsplit(valkey_url).port or 0, authority.sign("localhost")) as port:
        good = f"rediss://localhost:{port}/0?ssl_ca_certs={authority.ca}"
        bad = {
            f"rediss://localhost:{port}/0?ssl_ca_certs={stranger.ca}": "certificate verify failed",
            f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.ca}": "ip address mismatch",
            f"redis://localhost:{port}/0": "closed|reset|timeout",
        }

        assert await cached_through(good) == (b"value", 0)
        assert (await examine_redis(good)).problem == ""
        for url, why in bad.items():
            value, failures = await cached_through(url)
            assert (value, failures > 0) == (None, True), url
            problem = (await examine_redis(url)).problem.lower()
            assert any(words in problem for words in why.split("|")), (url, problem)


async def cached_through(url: str) -> tuple[bytes | None, int]:
    failures = []
    cache = RedisCache(
        url,
        timeout_seconds=2,
        now=asyncio.get_running_loop().time,
        on_error=lambda: failures.append(1),
        on_rejected=lambda _: None,
    )
    cache.use_secret(bytes(32))
    await cache.set("tls", b"value", 60)
    for _ in range(100):
        value = await value_in(cache, "tls")
        if value is not None or failures:
            break
        await asyncio.sleep(0.05)
    await cache.close()
    return value, len(failures)


# -- model servers -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def echo_server(made: Certificate | None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A gRPC server that answers every call with what it was sent; yields its port and what it heard."""
    heard: list[bytes] = []

    async def echo(request: bytes, _context: object) -> bytes:
        heard.append(request)
        return request

    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        METHOD.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(echo)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    if made is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = (made.key.read_bytes(), made.cert.read_bytes())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield port, heard
    finally:
        await server.stop(None)


async def call(endpoint: str, tls: object, environment: dict[str, str]) -> bytes:
    ca_file = environment.get(CA)
    version = a_version("1", endpoints=[endpoint], backend={"tls": tls})
    backend = connect(version, environment, ca_file=Path(ca_file) if ca_file else None)
    replicas = replicas_of(backend)
    assert replicas is not None
    try:
        return await replicas.call(METHOD, b"hello", 10)
    finally:
        await backend.close()


@pytest.mark.parametrize("tls", [True, {"ca_env": f"{CA}_CHURN"}])
async def test_a_model_server_is_called_over_tls_when_its_authority_and_name_are_right(authority, tls):
    async with echo_server(authority.sign("localhost")) as (port, _):
        environment = {CA: str(authority.ca), f"{CA}_CHURN": str(authority.ca)}

        assert await call(f"localhost:{port}", tls, environment) == b"hello"


async def test_a_model_server_with_a_wrong_certificate_is_sent_nothing_and_the_error_says_why(authority, stranger):
    async with echo_server(authority.sign("localhost")) as (port, heard):
        with pytest.raises(BackendUnavailable, match="not signed by a trusted authority"):
            await call(f"localhost:{port}", True, {CA: str(stranger.ca)})
        with pytest.raises(BackendUnavailable, match="for another host name"):
            await call(f"127.0.0.1:{port}", True, {CA: str(authority.ca)})
        with pytest.raises(BackendUnavailable):
            await call(f"localhost:{port}", False, {})
    async with echo_server(None) as (port, more):
        with pytest.raises(BackendUnavailable, match="does not speak TLS"):
            await call(f"localhost:{port}", True, {CA: str(authority.ca)})

    assert heard == more == []


async def test_a_model_server_that_speaks_no_http_2_over_tls_is_named_so(authority):
    async with https_server(authority.sign("localhost")) as (port, heard):
        with pytest.raises(BackendUnavailable, match=r"without HTTP/2 \(ALPN\)"):
            await call(f"localhost:{port}", True, {CA: str(authority.ca)})

    assert heard == []


@asynccontextmanager
async def https_server(made: Certificate | None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Answers every request over HTTP; yields its port, and what it heard."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            asked = await reader.read(65_536)
            if asked.startswith(b"POST "):
                heard.append(asked)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
            else:
                writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            writer.close()
            await writer.wait_closed()

    context = None
    if made is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(made.cert, made.key)
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1], heard


async def call_over_http(endpoint: str, tls: object, environment: dict[str, str]) -> bytes:
    ca_file = environment.get(CA)
    version = a_version("1", protocol="oip-http", endpoints=[endpoint], backend={"tls": tls})
    backend = connect(version, environment, ca_file=Path(ca_file) if ca_file else None)
    replicas = replicas_of(backend)
    assert replicas is not None
    try:
        return await replicas.call("POST /score", b"hello", 10)
    finally:
        await backend.close()


@pytest.mark.parametrize("tls", [True, {"ca_env": f"{CA}_CHURN"}])
async def test_a_model_server_over_http_is_called_over_tls_when_its_authority_and_name_are_right(authority, tls):
    async with https_server(authority.sign("localhost")) as (port, _):
        environment = {CA: str(authority.ca), f"{CA}_CHURN": str(authority.ca)}

        assert await call_over_http(f"localhost:{port}", tls, environment) == b"hi"


async def test_a_model_server_over_http_with_a_wrong_certificate_is_sent_nothing(authority, stranger):
    async with https_server(authority.sign("localhost")) as (port, heard):
        with pytest.raises(BackendUnavailable, match="not signed by a trusted authority"):
            await call_over_http(f"localhost:{port}", True, {CA: str(stranger.ca)})
        with pytest.raises(BackendUnavailable, match="for another host name"):
            await call_over_http(f"127.0.0.1:{port}", True, {CA: str(authority.ca)})
    async with https_server(None) as (port, more):
        with pytest.raises(BackendUnavailable, match="does not speak TLS"):
            await call_over_http(f"localhost:{port}", True, {CA: str(authority.ca)})

    assert heard == more == []


@pytest.mark.parametrize(
    ("tls", "environment", "why"),
    [
        ("yes", {}, "must be true, false or"),
        ({"ca": "/etc/ca.pem"}, {}, "must be true, false or"),
        ({"ca_env": "HOME"}, {"HOME": "/root"}, "begins with UNDERSTUDY_BACKEND_CA_"),
        ({"ca_env": f"{CA}_X"}, {}, f"{CA}_X, which backend.tls names, is not set"),
        (True, {CA: "/nowhere"}, f"the file that {CA} names cannot be read"),
        (True, {CA: __file__}, "holds no certificate"),
    ],
)
async def test_what_is_wrong_with_the_tls_of_a_version_is_said(tls, environment, why):
    with pytest.raises(BackendUnavailable, match=why):
        await call("localhost:1", tls, environment)


# -- our own door ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_proxy_speaks_tls_with_one_process_and_with_several(
    workers, authority, stranger, database_url, tmp_path
):
    made = authority.sign("localhost")
    with a_stack(tmp_path, database_url) as stack:
        port = stack.start_proxy(workers=workers, wait_ready=False, tls_cert=made.cert, tls_key=made.key)
        trusting = ssl.create_default_context(cafile=str(authority.ca))
        doubting = ssl.create_default_context(cafile=str(stranger.ca))
        async with httpx2.AsyncClient(verify=trusting) as client:
            alive = await until_alive(client, f"https://localhost:{port}/livez")
            unknown = await client.post(
                f"https://localhost:{port}/v1/models/none/predict", content=b'{"entity_id": "a"}'
            )
            with pytest.raises(httpx2.ConnectError, match=r"(?i)mismatch"):
                await client.get(f"https://127.0.0.1:{port}/livez")
            with pytest.raises(httpx2.HTTPError):
                await client.get(f"http://localhost:{port}/livez")
        async with httpx2.AsyncClient(verify=doubting) as client:
            with pytest.raises(httpx2.ConnectError, match="verify failed"):
                await client.get(f"https://localhost:{port}/livez")

    assert alive == 200
    assert (unknown.status_code, unknown.json()["code"]) == (422, "E101")


async def until_alive(client: httpx2.AsyncClient, url: str) -> int:
    for _ in range(600):
        try:
            return (await client.get(url)).status_code
        except httpx2.TransportError:
            await asyncio.sleep(0.1)
    raise AssertionError("the proxy did not come up")


@pytest.mark.parametrize("wrong", ["no key", "another key", "no file"])
async def test_a_proxy_with_a_certificate_that_it_cannot_use_says_so_and_does_not_start(wrong, authority, tmp_path):
    made, other = authority.sign("localhost"), authority.sign("elsewhere")
    env = {"UNDERSTUDY_TLS_CERT": str(made.cert)}
    if wrong == "another key":
        env["UNDERSTUDY_TLS_KEY"] = str(other.key)
    elif wrong == "no file":
        env["UNDERSTUDY_TLS_KEY"] = str(tmp_path / "nothing.key")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "understudy.entrypoints.cli", "serve", "proxy",
        env={**os.environ, **env, "UNDERSTUDY_PORT": str(free_port())}, stderr=asyncio.subprocess.PIPE, cwd=tmp_path,
    )  # fmt: skip
    _, said = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 2
    expected = {"no key": "belong together", "another key": "cannot be used", "no file": "there is no such file"}
    assert "UNDERSTUDY_TLS_KEY" in said.decode()
    assert expected[wrong] in said.decode()
