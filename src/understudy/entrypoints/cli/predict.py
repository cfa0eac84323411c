"""``understudy predict``: one predict call to a running proxy, and what came of it."""

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import orjson
import typer

from understudy.adapters.http.proxy_client import HttpProxy
from understudy.client.problems import ProxyAway
from understudy.entrypoints.cli.predict_text import Told, answer_texts, told_document
from understudy.entrypoints.cli.shared.contexts.chosen_proxy import Place, chosen_proxy, own_credential
from understudy.entrypoints.cli.shared.contexts.context_file import checked_url
from understudy.entrypoints.cli.shared.environment import read_settings
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, ModelName
from understudy.entrypoints.cli.shared.rendering import advise, show
from understudy.entrypoints.demo.running import read_running
from understudy.errors import ScopeMissing, Unauthenticated, UnderstudyError
from understudy.settings import Settings

app = typer.Typer(add_completion=False)
CALL_SECONDS = 65.0
"""Longer than the longest time-out that a version may have, so that the proxy itself reports what was late."""
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - where a proxy listens; this process does not


class _Call(NamedTuple):
    """A predict call to make."""

    model: str
    entity: str
    inputs: Mapping[str, Any] | None
    """``None``: those of the example that the proxy gives for the model."""
    category: str | None
    version: str | None
    traced: bool


@app.command()
def predict(
    *,
    model: ModelName,
    entity: Annotated[str, typer.Option("--entity", metavar="ID", help="Whom the prediction is about.")],
    inputs: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE|-", help="An object of features; without it the model's example."),
    ] = None,
    category: Annotated[str | None, typer.Option(help="As the call's own category.")] = None,
    force_version: Annotated[
        str | None, typer.Option("--force-version", metavar="VERSION", help="Ask this one; needs scope operate.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Say also why this version, and by which ids to find it.")] = (
        False
    ),
    as_json: AsJson = False,
) -> None:
    """Make one predict call to a running proxy; it is logged like any other.

    The proxy is the one of UNDERSTUDY_PROXY_URL, else that of a demo in this folder, else the one of UNDERSTUDY_HOST
    and UNDERSTUDY_PORT. UNDERSTUDY_CREDENTIAL holds the key where one is asked for.
    """
    place = proxy_to_call(read_settings())
    given = None if inputs is None else read_inputs(inputs)
    call = _Call(model, entity, given, category, force_version, trace)
    try:
        told = asyncio.run(_ask(place, call))
    except ProxyAway as problem:
        raise CommandRefused(
            ExitCode.UNREACHABLE,
            f"{place.url}: {problem}",
            "Start a proxy (understudy demo, or understudy serve proxy), or name one with UNDERSTUDY_PROXY_URL.",
        ) from None
    except (Unauthenticated, ScopeMissing) as problem:
        raise _with_scope(problem, call) from None
    except UnderstudyError:
        advise(f"asked {place.url}; set UNDERSTUDY_PROXY_URL to ask another proxy")
        raise
    show({"call": told_document(told)}, *answer_texts(told), as_json=as_json)


def proxy_to_call(settings: Settings) -> Place:
    """Return the proxy that ``understudy predict`` calls: the settings', else a demo's, else this machine's."""
    own = own_credential(settings)
    if settings.proxy_url is not None and settings.context is None:
        return Place(checked_url(settings.proxy_url, "UNDERSTUDY_PROXY_URL"), own)
    chosen = chosen_proxy(settings)
    if chosen is not None:
        return chosen.place
    running = read_running(settings.state_dir)
    if running is not None:
        advise(f"demo in {settings.state_dir} at {running['proxy']}")
        return Place(running["proxy"], own or running.get("credential"))
    host = "127.0.0.1" if settings.host in _EVERYWHERE else settings.host
    scheme = "http" if settings.tls_cert is None else "https"
    return Place(f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}", own)


def read_inputs(source: str) -> Mapping[str, Any]:
    """Return the features that ``--inputs`` gives: JSON itself, a file's, or standard input's.

    Raises:
        CommandRefused: They cannot be read, or are no object.
    """
    try:
        content = sys.stdin.buffer.read() if source == "-" else _content_of(source)
        found = orjson.loads(content)
    except OSError as problem:
        raise CommandRefused(
            ExitCode.USAGE, f"--inputs: {source[1:]} cannot be read: {problem.strerror}", "Name a file: --inputs @FILE"
        ) from None
    except orjson.JSONDecodeError as problem:
        raise CommandRefused(
            ExitCode.USAGE, f"--inputs is not JSON: {problem}", """For example: --inputs '{"age": 41}'"""
        ) from None
    if not isinstance(found, dict):
        raise CommandRefused(ExitCode.USAGE, "--inputs holds no JSON object", """For example: --inputs '{"age": 41}'""")
    return found


def _content_of(source: str) -> bytes:
    return Path(source[1:]).read_bytes() if source.startswith("@") else source.encode()


async def _ask(place: Place, call: _Call) -> Told:
    model_path = f"/v1/models/{quote(call.model, safe='')}"
    async with HttpProxy(place.url, place.credential, timeout_seconds=CALL_SECONDS) as proxy:
        inputs = call.inputs
        if inputs is None:
            inputs = (await proxy.get(model_path)).document["example"]["body"]["inputs"]
            advise("inputs: the example of GET " + model_path + " (--inputs gives others)")
        body: dict[str, Any] = {"entity_id": call.entity, "inputs": inputs}
        if call.category is not None:
            body["category"] = call.category
        version_path = "" if call.version is None else f"/versions/{quote(call.version, safe='')}"
        trace_id = token_hex(16)
        headers = {"traceparent": f"00-{trace_id}-{token_hex(8)}-01"} if call.traced else {}
        began = time.monotonic()
        answer = await proxy.post(f"{model_path}{version_path}/predict", body, headers)
        seconds = time.monotonic() - began
        assignment = None
        if call.traced:
            category = {} if call.category is None else {"category": call.category}
            assignment = (await proxy.get(f"{model_path}/assignment", {"entity_id": call.entity, **category})).document
        return Told(
            call.model,
            call.entity,
            inputs,
            answer.document,
            answer.headers,
            seconds,
            trace_id if call.traced else None,
            assignment,
            call.version is not None,
        )


def _with_scope(problem: Unauthenticated | ScopeMissing, call: _Call) -> UnderstudyError:
    """Return the refusal with what a person at a command line can do about it."""
    scope = "predict" if call.version is None else "operate"
    return type(problem)(
        problem.detail,
        hint=f"understudy key create --scope {scope} --scope read makes a key; UNDERSTUDY_CREDENTIAL takes its "
        "<id>.<secret>.",
    )
