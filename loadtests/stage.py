"""What the five scenarios are played on: the product's own processes, and what is done to them meanwhile."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
from e2e.stack import sql
from failing.standstill import Standstills
from redis import Redis

from loadtests.answers import Change
from loadtests.locust_run import LocustRun
from loadtests.plain_body import FEATURES
from loadtests.scene import CACHE_SECONDS, POLICY_SECONDS, Cast, Proxy, Scene

LOADED, CACHED = "loaded", "cached"
MODEL_MS = 2.0
SLOW_MS = 300.0
"""What a planted slow model server needs longer."""
INPUTS = 100
CHALLENGER_PERCENT = 20
_COMMAND_SECONDS = 60.0
_FLIPS = (0.2, 0.35, 0.5, 0.65, 0.8)
"""When the weight changes, in shares of the scenario."""
_THIRD = 1 / 3
_SEED = 7


def cast(model_ms: float) -> Cast:
    """Return two models, each with a champion and the version that is to follow it, on two model servers."""
    flags = ["--latency-ms", str(model_ms)]
    return Cast(
        stubs={"champion": flags, "challenger": flags},
        versions={
            LOADED: (("1", "champion", 0), ("2", "challenger", 0)),
            CACHED: (("1", "champion", CACHE_SECONDS), ("2", "champion", CACHE_SECONDS)),
        },
    )


class Stage:
    """A proxy with its parts, and the ways in which people change what it does.

    Args:
        scene: Where everything runs.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.proxy: Proxy = scene.proxy(with_valkey=True)
        self.standstills = Standstills()
        self.inputs = scene.folder / "inputs.jsonl"
        _write_inputs(self.inputs)

    @property
    def host(self) -> str:
        """Where the proxy listens."""
        return f"http://127.0.0.1:{self.proxy.port}"

    def rows(self) -> dict[str, int]:
        """Wait until every row is in Postgres, and return how many there are of each prediction id."""
        self.proxy.await_log()
        query = "SELECT prediction_id::text AS id, count(*) AS n FROM PredictionLog WHERE role <> 'shadow' GROUP BY 1"
        return {row["id"]: row["n"] for row in asyncio.run(sql(self.scene.postgres.url, query))}

    def set_weight(self, percent: int) -> Change:
        """Give the challenger so much of the model ``loaded``, by plain SQL."""
        statement = "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = $2 WHERE model_name = $3"
        return self._change(
            LOADED,
            frozenset(["1"] * (percent < 100) + ["2"] * (percent > 0)),
            lambda: asyncio.run(
                sql(self.scene.postgres.url, statement, self.scene.versions[LOADED]["2"], percent, LOADED)
            ),
        )

    def settle(self, percent: int) -> None:
        """Give the challenger so much, and wait until that is old."""
        self.set_weight(percent)
        time.sleep(POLICY_SECONDS)

    def set_weight_by_command(self, percent: int) -> Change:
        """The same by the command line."""
        return self._change(
            LOADED,
            frozenset(["1"] * (percent < 100) + ["2"] * (percent > 0)),
            lambda: self._understudy(
                "model", "set", LOADED, "--challenger", "2", "--weight", str(percent), "--reason", "load test", "--yes"
            ),
        )

    def promote(self, version: str) -> Change:
        """Make a version the champion of the model ``cached`` by the command line: nothing of its answers is known."""
        return self._change(
            CACHED,
            frozenset([version]),
            lambda: self._understudy("model", "set", CACHED, "--champion", version, "--reason", "load test", "--yes"),
        )

    def as_it_is(self, model: str, *versions: str) -> Change:
        """Return the policy that is in force, with the versions that may answer."""
        return self._change(model, frozenset(versions), lambda: None)

    def kill_challenger(self) -> None:
        """End the challenger's model server at once."""
        self.scene.stack.processes["stub-challenger"].child.kill()

    def empty_valkey(self) -> None:
        """Forget every answer that proxies share."""
        if self.scene.valkey_url is not None:
            with Redis.from_url(self.scene.valkey_url) as client:
                client.flushall()

    def _change(self, model: str, versions: frozenset[str], change: Callable[[], object]) -> Change:
        ordered = time.monotonic()
        change()
        heard = time.monotonic()
        query = "SELECT generation FROM ServingPolicy WHERE model_name = $1"
        (row,) = asyncio.run(sql(self.scene.postgres.url, query, model))
        return Change(row["generation"], ordered, heard, versions)

    def _understudy(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "understudy.entrypoints.cli", *arguments]
        environment = {**os.environ, "DATABASE_URL": self.scene.postgres.url}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=_COMMAND_SECONDS, check=False
        )
        if done.returncode:
            raise RuntimeError(f"understudy {' '.join(arguments)}: {done.stderr}{done.stdout}")


Play = Callable[[Stage, LocustRun], list[Change]]
"""What is done while a load goes on; gives the changes of the policy that callers must have seen."""


def nothing(_stage: Stage, _load: LocustRun) -> list[Change]:
    """Let it go on."""
    return []


def flip(stage: Stage, load: LocustRun) -> list[Change]:
    """Give the challenger everybody, and nobody, by turns; by SQL and by the command line."""
    changes = [stage.as_it_is(LOADED, "1")]
    for number, share in enumerate(_FLIPS):
        load.wait_until(share)
        percent = 0 if number % 2 else 100
        changes.append(stage.set_weight_by_command(percent) if number % 3 == 1 else stage.set_weight(percent))
    return changes


def kill_challenger(stage: Stage, load: LocustRun) -> list[Change]:
    """Kill the challenger's model server."""
    load.wait_until(_THIRD)
    stage.kill_challenger()
    return []


def empty_cache(stage: Stage, load: LocustRun) -> list[Change]:
    """Promote the next version, and empty Valkey: neither it nor the proxy itself knows any answer."""
    changes = [stage.as_it_is(CACHED, "1")]
    load.wait_until(_THIRD)
    stage.empty_valkey()
    return [*changes, stage.promote("2")]


def _write_inputs(path: Path) -> None:
    drawn = random.Random(_SEED)
    lines = [orjson.dumps({"inputs": {name: round(drawn.random(), 6) for name in FEATURES}}) for _ in range(INPUTS)]
    path.write_bytes(b"\n".join(lines) + b"\n")
