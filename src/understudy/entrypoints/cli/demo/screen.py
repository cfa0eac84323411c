"""What the demo says: a line for each part that is ready, the first prediction, the traffic, and the scenario."""

import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from understudy.bootstrap.psql import find_psql
from understudy.core.canary.decision import Verdict
from understudy.core.rollout.state import Phase
from understudy.entrypoints.cli.shared.texts.event_text import (
    INDENT,
    WIDTH,
    event_text,
    evidence_table,
)
from understudy.entrypoints.cli.shared.times import minutes_and_seconds
from understudy.entrypoints.demo.first_call import CUSTOMER, first_request
from understudy.entrypoints.demo.places import Demo
from understudy.entrypoints.demo.run import WANTED_PORT
from understudy.entrypoints.demo.scenario import Moment
from understudy.entrypoints.demo.topology import SCENARIO, SCENARIO_MODEL, ScenarioStep, Standing
from understudy.entrypoints.demo.traffic import WINDOW_SECONDS, Recent
from understudy.errors import UnderstudyError
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.settings import Settings

READY_WIDTH, SECONDS_WIDTH = 80, 7
FIRST_LINE_SECONDS, MAX_PAUSE_SECONDS = 10.0, 600.0
"""Without a terminal a line of figures comes after 10 s, then each time after twice as long, up to 10 minutes."""
LADDER_SECONDS = 15.0
"""Without a terminal the state of a rollout is said this often."""


class DemoScreen:
    """The demo's side of the conversation."""

    def __init__(self, console: Console, *, is_quiet: bool = False) -> None:
        self._console = console
        self._is_quiet = is_quiet
        self._began = time.monotonic()
        self._live: Live | None = None
        self._next_line = FIRST_LINE_SECONDS
        self._stood = self._began
        self._figures = Text()
        self._ladder: Text | None = None
        self._ladder_said = self._began
        self._phases: dict[int, str] = {}

    def ready(self, name: str, what: str, seconds: float) -> None:
        """Say that a part is ready."""
        line = Text("  ").append(f"{name:<10}", "bold").append(what)
        line.append(" " * max(2, READY_WIDTH - SECONDS_WIDTH - len(line))).append(f"{seconds:5.1f} s", "dim")
        self._print(line)

    def introduce(self, demo: Demo, answer: bytes, *, calls_per_second: float, steps: Sequence[ScenarioStep]) -> None:
        """Say where everything is, what will be shown, and what to try."""
        self._stood = time.monotonic()
        if calls_per_second:
            self._print(
                Text("  ").append(f"{'traffic':<10}", "bold").append(f"{calls_per_second:g} calls/s, held-out rows")
            )
        self._print(Text(f"\nReady in {self._stood - self._began:.1f} s. First prediction:\n", "bold green"))
        self._print(Text(curl_command(demo.proxy_url, first_request(), credential=demo.credential)))
        self._print(Text(f"\n  {answer.decode()}\n", "cyan"))
        for name, value in place_rows(demo):
            self._print(Text(f"  {name:<10}", "dim").append(value))
        self._print(Text("\nNext, in another terminal in this folder:\n", "bold"))
        for line in next_commands(demo, is_scenario=bool(steps)):
            self._print(Text(line))
        self._print(Text(f"\n{plan_words(steps)}", "bold" if steps else "dim"))
        self._print(Text("\nStop: Ctrl-C").append("  (data stays; understudy demo --reset starts over)\n", "dim"))

    def note(self, what: str) -> None:
        """Say something that happened."""
        self._print(Text(f"! {what}", "yellow"))

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._print(Text("Stopping everything …", "dim"))

    @contextmanager
    def live(self) -> Iterator[None]:
        """Keep the figures, and the rollout under way, at the bottom of a terminal."""
        if not self._console.is_terminal or self._is_quiet:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
            yield
        self._live = None

    def show_traffic(self, recent: Recent, total: int, failures: Counter[str]) -> None:
        """Renew the line of figures, or now and then print one where there is no terminal."""
        self._figures = traffic_line(recent, total, failures)
        if self._live is not None:
            self._renew()
        elif time.monotonic() - self._stood >= self._next_line and not self._is_quiet:
            self._next_line = min(self._next_line * 2, self._next_line + MAX_PAUSE_SECONDS)
            self._print(self._figures)

    def tell(self, moment: Moment) -> None:
        """Say what happened to a rollout, with the evidence when it was taken back, and renew how it stands."""
        record = moment.view.record
        if record.id not in self._phases:
            self._print(Text("\n").append(_scenario_heading(moment)))
        for event in moment.events:
            is_news = self._phases.get(record.id) != event.phase
            self._phases[record.id] = event.phase
            self._print(event_text(event, record.state.started_at, is_news=is_news))
            if event.verdict is Verdict.ROLL_BACK:
                self._console.print(Padding(evidence_table(event.evidence), (1, 0, 1, 2)))
        self._ladder = None if moment.is_over else ladder_line(moment.view)
        if moment.is_over:
            self._print(Text(" " * INDENT + f"→ {_this_command()} rollout show {SCENARIO_MODEL} {record.id}", "cyan"))
        self._renew_ladder()

    def finished(self) -> None:
        """Say that the scenario is over, and how it goes on."""
        self._print(Text("\nThe scenario is over; the traffic goes on.\n", "bold"))

    def refuse(self, problem: UnderstudyError) -> None:
        """Say why a rollout was not started."""
        self.note(f"no rollout was started: {problem.detail}\n  → {problem.next_step}")

    def _renew_ladder(self) -> None:
        if self._live is not None:
            self._renew()
        elif self._ladder and not self._is_quiet and time.monotonic() - self._ladder_said >= LADDER_SECONDS:
            self._ladder_said = time.monotonic()
            self._print(self._ladder)

    def _renew(self) -> None:
        lines = [line for line in (self._ladder, self._figures) if line]
        if self._live is not None:
            self._live.update(Text("\n").join(lines), refresh=True)

    def _print(self, text: Text) -> None:
        # Soft: a command that the terminal cuts into lines could not be copied.
        self._console.print(text, soft_wrap=True)


def _scenario_heading(moment: Moment) -> Text:
    """Return who is rolled out against whom, and what is to be known about it."""
    state = moment.view.record.state
    text = Text(
        f"Rollout {moment.view.record.id}: version {state.challenger} against champion {state.champion}\n", "bold"
    )
    return text.append(f"{' ' * INDENT}{moment.step.what}", "dim")


def plan_words(steps: Sequence[ScenarioStep]) -> str:
    """Say which rollouts will start by themselves."""
    if not steps:
        return f"No rollout starts by itself now; the whole scenario: {_this_command()} demo --reset"
    return f"Now the monitor decides, by itself, about version {' and then '.join(step.version for step in steps)}."


def traffic_line(recent: Recent, total: int, failures: Counter[str]) -> Text:
    """Return the figures of the latest seconds' calls, and of all calls those that failed and how, in one line."""
    text = Text("  ").append(f"{WINDOW_SECONDS:.0f} s", "dim")
    for name, calls in recent.by_role.most_common(4):
        text.append(f"  {name} {100 * calls / recent.calls:.0f} %", "green" if name == "champion" else "yellow")
    text.append(f"  p50/p99 {recent.p50_ms:.1f}/{recent.p99_ms:.1f} ms")
    failed = failures.total()
    how = ", ".join(f"{count} {what}" for what, count in failures.most_common(2))
    return text.append(f"  {failed} of {total} failed{f' ({how})' if how else ''}", "red" if failed else "dim")


def curl_command(
    proxy_url: str, request: Mapping[str, Any], width: int = WIDTH, *, credential: str | None = None
) -> str:
    """Return the screen's predict call for a shell, in lines of at most ``width`` columns where names allow."""
    members = [
        f"{orjson.dumps(name).decode()}:{orjson.dumps(value).decode()}" for name, value in request["inputs"].items()
    ]
    lines = [
        f"  curl -s {proxy_url}/v1/models/visits/predict \\",
        *([] if credential is None else [f"    -H 'authorization: Bearer {credential}' \\"]),
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


def ladder_line(view: RolloutView) -> Text:
    """Return the demo's line of a rollout's steps: those passed, the one it is at and for how long, those to come."""
    state = view.record.state
    at = len(state.step_starts) - 1
    text = Text("  ").append(f"rollout {view.record.id}  version {state.challenger} ", "bold")
    if state.phase in (Phase.FAILED, Phase.SUCCEEDED):
        return text.append(" the last proxies are told", "dim")
    if at < 0:
        return text.append(" warming up", "dim")
    for index, step in enumerate(state.plan.steps):
        name = f"{step.weight_percent} %" if step is not state.plan.steps[-1] else "champion"
        if index == at:
            text.append(f"  ● {name} for {minutes_and_seconds(view.read_at - state.step_started_at)}", "bold yellow")
        else:
            text.append(f"  {'✔' if index < at else '○'} {name}", "green" if index < at else "dim")
    return text.append("  waits for a person", "bold yellow") if state.phase is Phase.WAITING else text


def place_rows(demo: Demo) -> list[tuple[str, str]]:
    """Return the rows of the screen that say where everything is: names and addresses."""
    return [
        ("proxy", demo.proxy_url + ("" if demo.has_usual_port else f"  ({WANTED_PORT} is taken)")),
        ("gRPC", demo.grpc_target),
        ("console", f"{demo.console_url}   sign in with the key {demo.console_key}"),
        ("", f"or, once and within a minute, by {demo.console_link()}"),
        ("docs", f"{demo.proxy_url}/docs"),
        ("metrics", demo.metrics_url),
        ("monitor", demo.monitor_metrics_url),
        ("database", demo.shown_database_url),
        ("cache", demo.shown_redis_url or "inside the proxy"),
        ("state", str(demo.state_dir)),
        *([] if demo.credential is None else [("key", f"Authorization: Bearer {demo.credential}")]),
    ]


def next_commands(demo: Demo, *, is_scenario: bool) -> list[str]:
    """Return what to try next; during the scenario nothing that a rollout would take for another operator's change."""
    understudy = shlex.quote(_this_command())
    return [
        *_state_folder(demo.state_dir),
        *(_take_back(understudy) if is_scenario else _change_split(demo, understudy)),
        f"  {understudy} model show visits",
        f"  {understudy} explain visits customer-{CUSTOMER}",
        f"  {understudy} audit list",
    ]


def _state_folder(folder: Path) -> list[str]:
    """Without ``DATABASE_URL`` a command finds the demo by its folder only."""
    is_usual = folder.absolute() == Path(Settings.model_fields["state_dir"].default).absolute()
    return [] if is_usual else [f"  export UNDERSTUDY_STATE_DIR={shlex.quote(str(folder.absolute()))}"]


def _take_back(understudy: str) -> list[str]:
    sql = f"SELECT understudy_rollback('{SCENARIO_MODEL}', 'enough')"
    return [f"  {understudy} rollout watch {SCENARIO_MODEL}", *_sql(understudy, f'-c "{sql}"')]


def _change_split(demo: Demo, understudy: str) -> list[str]:
    version = challenger_to_try(demo.standing)
    change = ('-c "UPDATE ServingPolicy SET challenger_weight = 50', f"    WHERE model_name = '{SCENARIO_MODEL}'\"")
    return [
        f'  {understudy} model set {SCENARIO_MODEL} --challenger {version} --weight 10 --reason "try" --yes',
        *_sql(understudy, *change),
        f'  {understudy} rollback {SCENARIO_MODEL} --reason "seen enough" --yes',
        f'  {understudy} rollout start {SCENARIO_MODEL} {version} --plan 10,50,100 --reason "try" --yes',
    ]


def _sql(understudy: str, *lines: str) -> list[str]:
    return [] if find_psql() is None else [f"  {understudy} db psql \\", *(f"    {line}" for line in lines)]


def challenger_to_try(standing: Standing) -> str:
    """Return a version that can be challenger; the bad one only when there is no other."""
    return min(standing.candidates - {SCENARIO[0].version}, default=SCENARIO[0].version)


def _this_command() -> str:
    """Return how this program is called from the folder at hand: by its name only where a shell would find it."""
    if shutil.which("understudy"):
        return "understudy"
    own = Path(sys.executable).with_name("understudy")
    return str(own.relative_to(Path.cwd())) if own.is_relative_to(Path.cwd()) else str(own)
