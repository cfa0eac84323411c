"""Callers of a proxy, for locust: requests are due by the clock, and wait in nobody's shadow.

    locust -f loadtests/locustfile.py --host http://127.0.0.1:8080 --model visits --headless \\
      -u 100 -r 100 -t 1m --rate 100 --slo my-slo.toml

``-u`` is how many connections there are at most, ``--rate`` how many requests are due in a second. A free caller takes
the next request that is due; when all of them wait for answers, it is sent late, and its time counts from when it was
due. With constant waiting times between requests instead, a slow server would be asked less, and look well.

Model, inputs and the rest are options or environment variables (``--help``); the key is UNDERSTUDY_CREDENTIAL only,
since a command line can be read by others. Exit status with ``--slo``: 0 all objectives are met, 1 one is not, 2 it
cannot be judged. SIGUSR1 ends the load before ``-t`` does, and in the same way: answers that are on their way count.
"""

import os
import signal
import sys
import time
import urllib.error
import urllib.request
from itertools import count
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote

# locust puts the folder of this file on the path, where a module is called profile, and not the folder above it.
_FOLDER = Path(__file__).resolve().parent
sys.path[:] = [str(_FOLDER.parent), *(entry for entry in sys.path if Path(entry).resolve() != _FOLDER)]

import gevent  # noqa: E402 - after the path is right, as all below
import orjson  # noqa: E402
from locust import FastHttpUser, constant, events, task  # noqa: E402
from locust.argument_parser import LocustArgumentParser  # noqa: E402
from locust.env import Environment  # noqa: E402
from locust.exception import StopUser  # noqa: E402
from locust.runners import MasterRunner, WorkerRunner  # noqa: E402

from loadtests.answers import (  # noqa: E402
    BROKEN,
    Answer,
    Recorded,
    body_of,
    figures_of,
    kind_of,
    write_beginning,
    write_rest,
)
from loadtests.scenarios import SCENARIOS, Arrivals  # noqa: E402
from loadtests.slo import BadSlo, Slos, broken, judge, read_slos, verdict_of  # noqa: E402

PATIENCE_SECONDS = 10.0
"""A caller gives an answer up after that."""
KEPT = 250_000
"""So many answers are kept for objectives, and the load ends there."""


class Load:
    """What callers share: inputs, whose turn it is, and what came of it.

    Args:
        environment: Of locust, with the options.
    """

    def __init__(self, environment: Environment) -> None:
        options = environment.parsed_options
        assert options is not None
        assert environment.host is not None
        self.environment = environment
        self.scenario: str = options.scenario
        self.path = f"/v1/models/{quote(options.model, safe='')}/predict"
        self.headers = {"content-type": "application/json", **_credential()}
        self.slos: Slos | None = read_slos(Path(options.slo)) if options.slo else None
        self.file = Path(options.answers) if options.answers else None
        self.seconds: float | None = options.run_time
        self.arrivals = Arrivals(SCENARIOS[self.scenario].phases, options.rate)
        if self.slos is not None:
            judge(self.slos, self.scenario, {})  # says now that nothing is asked of this scenario
        self.inputs = _read_inputs(options.inputs) if options.inputs else [_example(environment.host, options.model)]
        self._entities = f"load-{time.time_ns():x}"
        self._keeps = self.file is not None or self.slos is not None
        self.answers: list[Answer] = []
        self.began: float | None = None
        self.ended = inf

    def begin(self) -> None:
        """Start the clock, and forget what was before."""
        self.answers.clear()
        self.began, self.ended = time.monotonic(), inf
        self._numbers = count()
        if self.file is not None:
            write_beginning(self.file, self.began)

    def end(self) -> None:
        """Stop the clock: what is not due yet is not asked any more."""
        self.ended = min(self.ended, time.monotonic())

    def next_due(self) -> tuple[int, float]:
        """Return the next request's number, and when it is due by the monotonic clock.

        Raises:
            StopUser: The load is over before it is due.
        """
        assert self.began is not None
        number = next(self._numbers)
        after = self.arrivals.due_seconds(number)
        if self.seconds is not None and after >= self.seconds:
            raise StopUser
        return number, self.began + after

    def body(self, number: int) -> bytes:
        """Return what is sent: the inputs in their order and over again, for another entity each time."""
        return body_of(self.inputs[number % len(self.inputs)], f"{self._entities}-{number}")

    def keep(self, answer: Answer) -> None:
        """Remember an answer if somebody wants to know."""
        if self._keeps:
            self.answers.append(answer)
            if len(self.answers) == KEPT and self.environment.runner is not None:
                print(f"the load ends: {KEPT:,} answers are as many as are kept", file=sys.stderr)
                gevent.spawn(self.environment.runner.quit)

    def recorded(self) -> Recorded:
        """Return all of it."""
        assert self.began is not None
        lasted = min(self.ended - self.began, self.seconds or inf)
        return Recorded(self.began, lasted, self.arrivals.planned(lasted), self.answers)


class Caller(FastHttpUser):
    """One connection."""

    wait_time = constant(0)
    connection_timeout = PATIENCE_SECONDS
    network_timeout = PATIENCE_SECONDS

    @task
    def predict(self) -> None:
        """Take the next request that is due, wait until then, send it and keep what came."""
        load = _load
        assert load is not None
        number, due = load.next_due()
        gevent.sleep(max(0.0, due - time.monotonic()))
        if due >= load.ended:
            raise StopUser
        sent = time.monotonic()
        with self.client.post(
            load.path, data=load.body(number).decode(), headers=load.headers, catch_response=True, name="predict"
        ) as response:
            answer = _answer(due, sent, time.monotonic(), response)
            load.keep(answer)
            # locust counts from when a request was sent.
            response.request_meta["response_time"] = answer.ms
            response.request_meta["name"] = f"predict: {kind_of(answer)}"
            if answer.status == 200:
                response.success()
            else:
                response.failure(_why(answer.status, response))


_load: Load | None = None


@events.init_command_line_parser.add_listener
def _options(parser: LocustArgumentParser, **_: Any) -> None:
    asked = parser.add_argument_group("Understudy")
    asked.add_argument("--model", env_var="LOAD_MODEL", default="", help="whose predict calls are made")
    asked.add_argument(
        "--scenario", env_var="LOAD_SCENARIO", default="steady", choices=list(SCENARIOS),
        help="; ".join(f"{name}: {one.about}" for name, one in SCENARIOS.items()).replace("%", "%%"),
    )  # fmt: skip
    asked.add_argument("--rate", env_var="LOAD_RATE", type=float, default=100.0, help="requests due in a second (100)")
    asked.add_argument(
        "--inputs", env_var="LOAD_INPUTS", default="",
        help="file with a JSON object a line: the body of a predict call, entity_id may be missing "
        "(the model's own example, again and again: each answer may come from the cache)",
    )  # fmt: skip
    asked.add_argument("--slo", env_var="LOAD_SLO", default="", help="TOML file of objectives; decides the exit status")
    asked.add_argument("--answers", env_var="LOAD_ANSWERS", default="", help="file for each answer, one a line")


@events.init.add_listener
def _prepare(environment: Environment, **_: Any) -> None:
    global _load  # noqa: PLW0603 - locust makes the callers, and gives them nothing but their environment
    options = environment.parsed_options
    assert options is not None
    if isinstance(environment.runner, MasterRunner):
        return
    if not environment.host:
        _refuse("no --host: name the proxy, such as http://127.0.0.1:8080")
    if not options.model:
        _refuse("no --model: name one of those that `understudy model list` shows, or set LOAD_MODEL")
    if not 0 < options.rate <= KEPT:
        _refuse(f"--rate {options.rate:g}: expected more than 0 and at most {KEPT:,} requests a second")
    if (options.slo or options.answers) and isinstance(environment.runner, WorkerRunner):
        _refuse("--slo and --answers need one locust process: leave out --processes and --worker")
    try:
        _load = Load(environment)
    except (BadSlo, _Unusable) as problem:
        _refuse(str(problem))
    # Answers that are on their way at the end count too.
    environment.stop_timeout = environment.stop_timeout or PATIENCE_SECONDS
    if environment.runner is not None:
        gevent.signal_handler(signal.SIGUSR1, environment.runner.quit)


@events.test_start.add_listener
def _begin(**_: Any) -> None:
    if _load is not None:
        _load.begin()


@events.test_stopping.add_listener
def _end(**_: Any) -> None:
    if _load is not None:
        _load.end()


@events.quitting.add_listener
def _judge(environment: Environment, **_: Any) -> None:
    if _load is None or _load.began is None:
        return
    _load.end()
    recorded = _load.recorded()
    if _load.file is not None:
        write_rest(_load.file, recorded.lasted, recorded.planned, recorded.answers)
    if _load.slos is not None:
        targets = judge(_load.slos, _load.scenario, figures_of(recorded))
        print(verdict_of(targets), flush=True)
        environment.process_exit_code = 1 if broken(targets) else 0


class _Unusable(Exception):
    """Something that the load needs is not there; says what, and what to do."""


def _read_inputs(name: str) -> list[dict[str, Any]]:
    try:
        lines = Path(name).read_bytes().splitlines()
    except OSError as problem:
        raise _Unusable(f"--inputs {name}: cannot be read: {problem}") from problem
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            body = orjson.loads(line)
        except ValueError as problem:
            raise _Unusable(f"{name}:{number}: no JSON: {problem}") from problem
        if not isinstance(body, dict) or not isinstance(body.get("inputs"), dict):
            raise _Unusable(f'{name}:{number}: expected an object with "inputs", such as {{"inputs": {{"age": 41}}}}')
        found.append(body)
    if not found:
        raise _Unusable(f"{name} is empty: write a predict call's body on each line")
    return found


def _example(host: str, model: str) -> dict[str, Any]:
    """Return the inputs of the example call that a proxy shows for a model."""
    url = f"{host.rstrip('/')}/v1/models/{quote(model, safe='')}"
    try:
        asked = urllib.request.Request(url, headers=_credential())
        with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            return {"inputs": orjson.loads(answer.read())["example"]["body"]["inputs"]}
    except urllib.error.HTTPError as problem:
        hint = {404: "see `understudy model list`", 401: "UNDERSTUDY_CREDENTIAL takes a key"}.get(problem.code, "")
        why = f"{problem}; {hint or 'give --inputs'}"
    except (OSError, ValueError, KeyError, TypeError) as problem:
        why = f"{problem!r}; is it a proxy, and does it run? else give --inputs"
    raise _Unusable(f"{url}: no example call of the model to be had: {why}")


def _credential() -> dict[str, str]:
    key = os.environ.get("UNDERSTUDY_CREDENTIAL")
    return {"authorization": f"Bearer {key}"} if key else {}


def _answer(due: float, sent: float, ended: float, response: Any) -> Answer:
    status, headers = response.status_code or BROKEN, response.headers or {}
    content = response.content or b""
    return Answer(
        due,
        sent,
        ended,
        status,
        headers.get("x-prediction-id", ""),
        headers.get("x-model-version", ""),
        int(headers.get("x-policy-generation", 0)),
        headers.get("cache-status", "").startswith("understudy; hit"),
        status == 200 and b'"fallback":' in content and "fallback" in orjson.loads(content),
    )


def _why(status: int, response: Any) -> str:
    if status == BROKEN:
        return f"no answer: {response.error!r}"
    try:
        problem = orjson.loads(response.content)
        return f"{status} {problem['code']} {problem['title']}"
    except (ValueError, KeyError, TypeError):
        return f"status {status}"


def _refuse(why: str) -> None:
    print(why, file=sys.stderr, flush=True)
    sys.exit(2)
