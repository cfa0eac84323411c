"""What the demo says: a line for each part that is ready, the first prediction, and what became of the traffic."""

import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.live import Live
from rich.text import Text

from understudy.adapters.embedded_postgres import find_installations
from understudy.entrypoints.demo.run import CUSTOMER, WANTED_PORT, Demo, first_request
from understudy.entrypoints.demo.traffic import WINDOW_SECONDS, Recent

_SQL = ('    -c "UPDATE ServingPolicy SET challenger_weight = 50', "        WHERE model_name = 'visits'\"")
WIDTH = 78
READY_WIDTH, SECONDS_WIDTH = 80, 7
FIRST_LINE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 600.0
"""Without a terminal a line of figures comes after 10 s, then each time after twice as long, up to 10 minutes."""


class Scene:
    """The demo's side of the conversation."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._live: Live | None = None
        self._next_line = FIRST_LINE_SECONDS
        self._stood = self._began

    def ready(self, name: str, what: str, seconds: float) -> None:
        """Say that a part is ready."""
        line = Text("  ").append(f"{name:<10}", "bold").append(what)
        line.append(" " * max(2, READY_WIDTH - SECONDS_WIDTH - len(line))).append(f"{seconds:5.1f} s", "dim")
        self._print(line)

    def introduce(self, demo: Demo, answer: bytes, *, calls_per_second: float) -> None:
        """Say where everything is and what to try."""
        self._stood = time.monotonic()
        if calls_per_second:
            self._print(
                Text("  ").append(f"{'traffic':<10}", "bold").append(f"{calls_per_second:g} calls/s, held-out rows")
            )
        self._print(Text(f"\nReady in {self._stood - self._began:.1f} s. First prediction:\n", "bold green"))
        self._print(Text(curl_command(demo.proxy_url, first_request())))
        self._print(Text(f"\n  {answer.decode()}\n", "cyan"))
        for name, value in places(demo):
            self._print(Text(f"  {name:<10}", "dim").append(value))
        self._print(Text("\nNext, in another terminal in this folder:\n", "bold"))
        for line in next_commands(demo):
            self._print(Text(line))
        self._print(Text("\nStop: Ctrl-C").append("  (data stays; understudy demo --reset starts over)\n", "dim"))

    def note(self, what: str) -> None:
        """Say something that happened."""
        self._print(Text(f"! {what}", "yellow"))

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._print(Text("Stopping everything …", "dim"))

    @contextmanager
    def live(self) -> Iterator[None]:
        """Keep a line of figures at the bottom of a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
            yield
        self._live = None

    def show_traffic(self, recent: Recent, total: int, failed: int) -> None:
        """Renew the line of figures, or now and then print one where there is no terminal."""
        line = traffic_line(recent, total, failed)
        if self._live is not None:
            self._live.update(line, refresh=True)
        elif time.monotonic() - self._stood >= self._next_line:
            self._next_line = min(self._next_line * 2, self._next_line + LONGEST_PAUSE_SECONDS)
            self._print(line)

    def _print(self, text: Text) -> None:
        # Soft: a command that the terminal cuts into lines could not be copied.
        self._console.print(text, soft_wrap=True)


def traffic_line(recent: Recent, total: int, failed: int) -> Text:
    """Return the figures of the latest seconds' calls, and of all calls those that failed, in one line."""
    text = Text("  ").append(f"{WINDOW_SECONDS:.0f} s", "dim")
    for name, calls in recent.by_role.most_common(4):
        text.append(f"  {name} {100 * calls / recent.calls:.0f} %", "green" if name == "champion" else "yellow")
    text.append(f"  p50/p99 {recent.p50_ms:.1f}/{recent.p99_ms:.1f} ms")
    return text.append(f"  {failed} of {total} failed", "red" if failed else "dim")


def curl_command(proxy_url: str, request: Mapping[str, Any], width: int = WIDTH) -> str:
    """Return a predict call that a shell takes as it is, in lines of at most ``width`` columns where names allow."""
    members = [
        f"{orjson.dumps(name).decode()}:{orjson.dumps(value).decode()}" for name, value in request["inputs"].items()
    ]
    lines = [
        f"  curl -s {proxy_url}/v1/models/visits/predict \\",
        f"""    -H 'content-type: application/json' -d '{{"entity_id":{orjson.dumps(request["entity_id"]).decode()},""",
    ]
    line = '    "inputs":{'
    for index, member in enumerate(members):
        piece = member + ("," if index < len(members) - 1 else "}}'")
        if len(line) + len(piece) > width:
            lines.append(line)
            line = "      "
        line += piece
    return "\n".join([*lines, line])


def places(demo: Demo) -> list[tuple[str, str]]:
    """Return where everything is."""
    return [
        ("proxy", demo.proxy_url + ("" if demo.has_usual_port else f"  ({WANTED_PORT} is taken)")),
        ("docs", f"{demo.proxy_url}/docs"),
        ("metrics", demo.metrics_url),
        ("database", demo.database_url),
        ("cache", demo.redis_url or "inside the proxy"),
        ("state", str(demo.state_dir)),
    ]


def next_commands(demo: Demo) -> list[str]:
    """Return what to try next; the first one changes the split with plain SQL."""
    psql, understudy = find_psql(), shlex.quote(this_command())
    if psql is None:
        change = [f"  {understudy} model set visits --weight 50 --yes --reason 'looks good'"]
    else:
        change = [f"  {shlex.quote(psql)} {demo.database_url} \\", *_SQL]
    return [
        *change,
        f"  {understudy} model show visits",
        f"  {understudy} explain visits customer-{CUSTOMER}",
        f"  {understudy} audit list",
    ]


def this_command() -> str:
    """Return how this program is called from the folder at hand: by its name only where a shell would find it."""
    if shutil.which("understudy"):
        return "understudy"
    own = Path(sys.executable).with_name("understudy")
    return str(own.relative_to(Path.cwd())) if own.is_relative_to(Path.cwd()) else str(own)


def find_psql() -> str | None:
    """Return a SQL prompt: the machine's, else the one beside the embedded Postgres."""
    if shutil.which("psql"):
        return "psql"
    found = (installation.binary("psql") for installation in find_installations() if installation.packaged)
    return next((path for path in found if shutil.which(path)), None)
