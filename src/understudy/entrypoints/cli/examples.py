"""``understudy examples``: the example models on servers of your own, and calls of them."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from understudy.core.routing.access import Scope
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import advise, show
from understudy.entrypoints.demo import registration
from understudy.entrypoints.demo.topology import SUMMARY
from understudy.entrypoints.demo.traffic import Recent, Traffic

REPORT_SECONDS = 10.0
HTTP_PORT = 80
OWNER_ONLY = 0o600

app = typer.Typer(no_args_is_help=True, help="Register the example models, and call them.", add_completion=False)


@app.command()
def register(
    *,
    endpoint: Annotated[str, typer.Option(metavar="HOST:PORT", help="The model server that has all of them.")],
    key_file: Annotated[Path | None, typer.Option(help="Where to write a key that may predict.")] = None,
    as_json: AsJson = False,
) -> None:
    """Register the example models and make their first policies; doing it again moves them to another server."""
    database_url = settings_with_demo().database_url.get_secret_value()
    standing = asyncio.run(registration.register_at(database_url, endpoint))
    if key_file is not None:
        _write_key(key_file, asyncio.run(registration.make_key(database_url, [Scope.PREDICT])))
    document = {"endpoint": endpoint, "champion": standing.champion, "key_file": key_file and str(key_file)}
    show(document, f"✔ {SUMMARY}, at {endpoint}; visits {standing.champion} is the champion", as_json=as_json)


@app.command()
def traffic(
    *,
    url: Annotated[str, typer.Option(metavar="URL", help="The proxy, such as http://127.0.0.1:8080.")],
    rate: Annotated[float, typer.Option(min=0.1, max=10_000.0, help="Calls per second.")] = 20.0,
    key_file: Annotated[Path | None, typer.Option(help="A file with the key, where the proxy wants one.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="How long; without it until SIGTERM.")] = None,
) -> None:
    """Call the example model steadily, and say every ten seconds what became of it."""
    host, port = _place_of(url)
    calls = Traffic(port, rate, host=host, credential=None if key_file is None else _read_key(key_file))
    asyncio.run(_call(calls, seconds))
    if calls.total in (0, calls.failed):
        advice = "Look at /readyz of the proxy, and whether the key is one that may predict."
        raise CommandRefused(ExitCode.UNREACHABLE, f"none of {calls.total} calls was answered", advice)


async def _call(calls: Traffic, seconds: float | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    give_up = None if seconds is None else loop.time() + seconds
    calling = asyncio.ensure_future(calls.run())
    try:
        while not stop.is_set() and (give_up is None or loop.time() < give_up):
            pause = REPORT_SECONDS if give_up is None else min(REPORT_SECONDS, give_up - loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, pause)):
                    await stop.wait()
            typer.echo(_traffic_line(calls.recent()))
    finally:
        calling.cancel()
        with suppress(asyncio.CancelledError):
            await calling


def _traffic_line(recent: Recent) -> str:
    """Return what became of the latest calls, on one line."""
    by_role = ", ".join(f"{count} {what}" for what, count in sorted(recent.by_role.items()))
    return (
        f"{recent.calls} calls, {recent.failed} failed, p50 {recent.p50_ms:.1f} ms, p99 {recent.p99_ms:.1f} ms"
        f": {by_role or 'no answer'}"
    )


def _place_of(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or HTTP_PORT
    except ValueError:
        host, port = None, 0
    if not host or parts.scheme != "http":
        raise CommandRefused(ExitCode.USAGE, "--url is not http://host:port", "For example: http://127.0.0.1:8080")
    return host, port


def _write_key(path: Path, credential: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(OWNER_ONLY)
        path.chmod(OWNER_ONLY)
        path.write_text(f"{credential}\n", encoding="utf-8")
    except OSError as problem:
        advice = "Name a file in a folder that this account may write to; this key is lost, and harmless."
        raise CommandRefused(ExitCode.USAGE, f"--key-file: {path}: {problem.strerror}", advice) from None
    advise(f"a key that may predict is in {path}; the one of an earlier run is revoked")


def _read_key(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as problem:
        advice = "understudy examples register --key-file writes one."
        raise CommandRefused(ExitCode.USAGE, f"--key-file: {path}: {problem.strerror}", advice) from None
