"""``understudy demo``: everything on this machine, with one command."""

import asyncio
import signal
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.demo.screen import DemoScreen
from understudy.entrypoints.cli.shared.environment import read_settings
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import advice_console, data_console, print_json
from understudy.entrypoints.demo.first_call import first_prediction
from understudy.entrypoints.demo.places import Demo
from understudy.entrypoints.demo.processes import Child, ending, watch_children
from understudy.entrypoints.demo.refusal import DemoRefused
from understudy.entrypoints.demo.run import DemoOptions, open_demo
from understudy.entrypoints.demo.scenario import play, steps_of
from understudy.entrypoints.demo.topology import DATABASE_SECONDS, ScenarioStep
from understudy.entrypoints.demo.traffic import Traffic
from understudy.errors import UnderstudyError
from understudy.settings import Settings

app = typer.Typer(add_completion=False)
_TICK_SECONDS = 1.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Wish(NamedTuple):
    """What to do with the demo once it stands."""

    calls_per_second: float
    show: bool | None
    """``None``: as long as the model's first policy is unchanged."""
    once: bool
    as_json: bool
    open_console: bool


@app.command()
def demo(
    *,
    state_dir: Annotated[Path | None, typer.Option(help="Where data and logs are; default ./.understudy.")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Of the proxy; else UNDERSTUDY_PORT, 8080 or a free one."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes of the proxy.")] = 1,
    traffic: Annotated[bool, typer.Option(help="Whether to call the proxy steadily.")] = True,
    rate: Annotated[float, typer.Option(min=0.1, max=2_000, help="Calls each second.")] = 50.0,
    show: Annotated[
        bool | None, typer.Option(help="Whether to start the two rollouts; default only in a new database.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Delete the data of earlier demos first.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print one prediction and leave.")] = False,
    open_console: Annotated[bool, typer.Option("--open", help="Open the console in a browser, signed in.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start Postgres, a cache, model servers, the proxy, the monitor and some traffic; Ctrl-C stops them all.

    In a new database it then rolls two versions out: one is bad on purpose and is rolled back, the other one becomes
    champion; the monitor alone decides both.

    With UNDERSTUDY_AUTH=true the proxy asks for a key; the demo makes itself one and says it.

    DATABASE_URL and REDIS_URL replace the embedded servers by yours. With --json, one line when everything is ready.
    """
    settings = read_settings()
    options = DemoOptions(
        state_dir=state_dir or settings.state_dir,
        port=wanted_port(port, settings),
        workers=workers,
        reset=reset,
        database_url=settings.database_url.get_secret_value() if "database_url" in settings.model_fields_set else None,
        redis_url=settings.redis_url.get_secret_value() if settings.redis_url else None,
        asks_key=bool(settings.auth),
    )
    if show and not traffic:
        raise CommandRefused(ExitCode.USAGE, "a rollout without traffic shows nothing", "Leave --no-traffic out.")
    wish = _Wish(rate if traffic else 0.0, show, once, as_json, open_console)
    screen = DemoScreen(advice_console() if once or as_json else data_console(), is_quiet=as_json)
    try:
        stood = asyncio.run(_play(options, wish, screen))
    except DemoRefused as problem:
        raise CommandRefused(ExitCode.PROBLEM, problem.detail, problem.next_step) from None
    raise typer.Exit(ExitCode.DONE if stood else ExitCode.INTERRUPTED)


def wanted_port(option: int | None, settings: Settings) -> int | None:
    """Return the proxy's port that was asked for, by option or by ``UNDERSTUDY_PORT``; ``None`` when none was."""
    if option is not None:
        return option
    return settings.port if "port" in settings.model_fields_set else None


async def _play(options: DemoOptions, wish: _Wish, screen: DemoScreen) -> bool:
    """Run the demo until a signal; return whether it stood by then."""
    task = asyncio.ensure_future(_stand(options, wish, screen))
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return False
    return True


async def _stand(options: DemoOptions, wish: _Wish, screen: DemoScreen) -> None:
    async with open_demo(options, screen.ready) as demo:
        answer = await first_prediction(demo)
        if wish.once:
            typer.echo(answer.decode())
            return
        steps = _steps(demo, wish)
        if wish.as_json:
            print_json(demo.document())
        else:
            screen.introduce(demo, answer, calls_per_second=wish.calls_per_second, steps=steps)
        if wish.open_console:
            await asyncio.to_thread(webbrowser.open, demo.console_link())
        traffic = None
        if wish.calls_per_second:
            traffic = Traffic(demo.proxy_port, wish.calls_per_second, credential=demo.credential)
        # Being told to stop is how a demo that stood ends well; what is left is to stop everything.
        with suppress(asyncio.CancelledError):
            await _go_on(demo, screen, traffic, steps)
        screen.stopping()


def _steps(demo: Demo, wish: _Wish) -> Sequence[ScenarioStep]:
    wanted = demo.standing.is_new if wish.show is None else wish.show
    return steps_of(demo.standing) if wanted and wish.calls_per_second else ()


async def _run_scenario(demo: Demo, screen: DemoScreen, steps: Sequence[ScenarioStep]) -> None:
    try:
        async with Session(demo.database_url, timeout_seconds=DATABASE_SECONDS) as session:
            async for moment in play(session.rollouts, steps):
                screen.tell(moment)
    except UnderstudyError as problem:
        screen.refuse(problem)
    else:
        screen.finished()


async def _go_on(demo: Demo, screen: DemoScreen, traffic: Traffic | None, steps: Sequence[ScenarioStep]) -> None:
    """Send traffic and say what happens, until cancelled.

    Raises:
        DemoRefused: The proxy ended; without it there is nothing to show. Any other process may, and is only named.
    """

    def note(child: Child, status: int) -> None:
        if child.name == "proxy":
            raise child.refusal(ending(status))
        screen.note(f"{child.name} {ending(status)}")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(watch_children(demo.children, note))
            if traffic is not None:
                group.create_task(traffic.run())
            if steps:
                group.create_task(_run_scenario(demo, screen, steps))
            with screen.live():
                while True:
                    await asyncio.sleep(_TICK_SECONDS)
                    if traffic is not None:
                        screen.show_traffic(traffic.recent(), traffic.total, traffic.failures)
    except BaseExceptionGroup as problems:
        raise problems.exceptions[0] from None
