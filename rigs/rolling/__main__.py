"""``make test-rolling``: from the release before this one to this one and back, under load.

Two proxies and a monitor of the older release serve, with a rollout that it began. Then this release migrates the
database under them, its processes take their places one after the other, and the older ones come back, as where an
upgrade is taken back without its schema. At each stage a policy that is changed by SQL has to reach both proxies.

Exit status 0: no call failed, every answer is in the log once, and the rollout is still open; 1: not.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from e2e.load import Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, Process, Stack, logged_ids, register, sql

from tools.previous.release import newest_schema, take_out
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.embedded.valkey import EmbeddedValkey

CLI: Final = "understudy.entrypoints.cli"
PROXIES: Final = ("proxy-a", "proxy-b")
CALLS_PER_SECOND: Final = 20.0
LONGEST_SECONDS: Final = 1_200.0
SETTLE_SECONDS: Final = 3.0
"""How long each stage serves after its processes are ready."""
GIVE_UP_SECONDS: Final = 60.0
MANY_ANSWERS: Final = 100
"""So many in a row come from both proxies."""
OK: Final = 200
_CHANGE: Final = """
    UPDATE ServingPolicy SET shadow_percent = $1 WHERE model_name = 'visits' RETURNING generation
"""


class Stage(NamedTuple):
    """Whose processes serve."""

    name: str
    proxies: tuple[str, str]
    """The Python of each proxy."""
    monitor: str


class Rolling:
    """All processes, and the load that calls whichever proxies are behind it."""

    def __init__(self, folder: Path, database_url: str, redis_url: str) -> None:
        self._folder = folder
        self.url = database_url
        self.stack = Stack(folder, database_url, redis_url)
        self.load = Load()
        self._ports: dict[str, int] = {}
        self._turn = 0
        self._pythons: dict[str, str] = {}

    def next_port(self) -> int:
        """Return where the next connection goes: round robin, as a load balancer has it."""
        ports = list(self._ports.values())
        self._turn += 1
        return ports[self._turn % len(ports)]

    def command(self, python: str, *arguments: str) -> str:
        """Run a command of a release, and return what it printed.

        Raises:
            SystemExit: It failed.
        """
        environment = {"DATABASE_URL": self.url, "HOME": str(self._folder), "PATH": "/usr/bin:/bin", "NO_COLOR": "1"}
        done = subprocess.run(
            [python, "-m", CLI, *arguments], check=False, capture_output=True, text=True, env=environment, timeout=120
        )
        if done.returncode:
            raise SystemExit(f"understudy {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def serve(self, stage: Stage) -> None:
        """Put a stage's processes in the place of others, one by one: each proxy once no connection goes to it."""
        for name, python in zip(PROXIES, stage.proxies, strict=True):
            if self._pythons.get(name) == python:
                continue
            if name in self._ports:
                del self._ports[name]
                self.stack.processes[name].stop()
            port = self.stack.start_proxy(name, python=python, state_dir=self._folder / name)
            self._ports[name], self._pythons[name] = port, python
        if self._pythons.get("monitor") != stage.monitor:
            if "monitor" in self._pythons:
                self.stack.processes["monitor"].stop()
            environment = {"DATABASE_URL": self.url, "UNDERSTUDY_MONITOR_METRICS_PORT": "0"}
            arguments = ["-m", CLI, "serve", "monitor"]
            monitor = Process("monitor", arguments, self._folder, environment, python=stage.monitor)
            self.stack.processes["monitor"], self._pythons["monitor"] = monitor, stage.monitor

    async def is_told(self, percent: int) -> None:
        """Change the policy by SQL, and wait until the last hundred answers were given by it, or a younger one.

        Raises:
            SystemExit: Not within a minute.
        """
        ((generation,),) = await sql(self.url, _CHANGE, percent)
        since, give_up = len(self.load.answers), time.monotonic() + GIVE_UP_SECONDS
        while True:
            answers = [one for one in self.load.answers[since:][-MANY_ANSWERS:] if one.status == OK]
            if len(answers) == MANY_ANSWERS and min(one.json["generation"] for one in answers) >= generation:
                return
            if time.monotonic() > give_up:
                raise SystemExit(f"a proxy does not answer by generation {generation} within {GIVE_UP_SECONDS:g} s")
            await asyncio.sleep(0.1)

    async def is_led(self) -> None:
        """Wait until a monitor leads.

        Raises:
            SystemExit: Not within a minute.
        """
        since, give_up = time.time(), time.monotonic() + GIVE_UP_SECONDS
        query = "SELECT 1 FROM MonitorLease WHERE renewed_at > to_timestamp($1)"
        while not await sql(self.url, query, since):
            if time.monotonic() > give_up:
                raise SystemExit(f"no monitor leads within {GIVE_UP_SECONDS:g} s")
            await asyncio.sleep(0.1)


def main(arguments: Sequence[str]) -> int:
    """Roll, and return the exit status."""
    release = take_out(arguments[0] if arguments else "")
    print(
        f"from {release.commit} (schema {release.schema}) to this tree (schema {newest_schema()}) and back", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="understudy-rolling-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres may run as another account
        with EmbeddedPostgres(folder / "postgres") as postgres, EmbeddedValkey() as valkey:
            return asyncio.run(_roll(folder, postgres.url, valkey.url, str(release.make_python())))


async def _roll(folder: Path, database_url: str, redis_url: str, old: str) -> int:
    rolling, new = Rolling(folder, database_url, redis_url), sys.executable
    stages = [
        Stage("all of the older release", (old, old), old),
        Stage("one proxy of this one", (new, old), old),
        Stage("both proxies of this one", (new, new), old),
        Stage("all of this one", (new, new), new),
        Stage("back: one proxy of the older", (old, new), new),
        Stage("back: all of the older", (old, old), old),
    ]
    try:
        rolling.command(old, "db", "upgrade")
        await _publish(rolling)
        rolling.serve(stages[0])
        calling = asyncio.create_task(_call(rolling))
        await rolling.is_led()
        rolling.command(old, "rollout", "start", "visits", "2", "--plan", "2,50,100", "--reason", "rolling", "--yes")
        for number, stage in enumerate(stages):
            with _told(rolling, stage.name):
                await asyncio.to_thread(rolling.serve, stage)
                await _serves(rolling, number)
            if number == 0:
                with _told(rolling, "the older release on the newer schema"):
                    rolling.command(new, "db", "upgrade")
                    await _serves(rolling, len(stages))
        rolling.load.is_over = True
        await calling
        return await _judge(rolling, new)
    finally:
        rolling.load.is_over = True
        rolling.stack.stop()


async def _publish(rolling: Rolling) -> None:
    port = rolling.stack.start_model("visits:1", "visits:2")
    champion, _ = [await register(rolling.url, label, [port]) for label in (1, 2)]
    await sql(rolling.url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion)


async def _call(rolling: Rolling) -> None:
    await run_load(
        rolling.next_port,
        VISITS,
        lambda number: PREDICT_BODIES[number % len(PREDICT_BODIES)],
        per_second=CALLS_PER_SECOND,
        seconds=LONGEST_SECONDS,
        load=rolling.load,
    )


async def _serves(rolling: Rolling, number: int) -> None:
    await rolling.is_told(10 + number)
    await rolling.is_led()
    await asyncio.sleep(SETTLE_SECONDS)


@contextmanager
def _told(rolling: Rolling, name: str) -> Iterator[None]:
    before, began = len(rolling.load.answers), time.monotonic()
    yield
    answers = rolling.load.answers[before:]
    failed = sum(one.status != OK for one in answers)
    print(f"{name}: {time.monotonic() - began:.1f} s, {len(answers)} calls, {failed} failed", flush=True)


async def _judge(rolling: Rolling, python: str) -> int:
    answered = rolling.load.prediction_ids()
    for process in rolling.stack.processes.values():
        if process.log.name.startswith("proxy"):
            process.stop()
    counts = Counter(await logged_ids(rolling.url, set(answered)))
    missing, twice = [one for one in answered if one not in counts], [one for one, rows in counts.items() if rows > 1]
    rolling.command(python, "rollout", "show", "visits")
    ((phase,),) = await sql(rolling.url, "SELECT state ->> 'phase' FROM Rollout")
    statuses = Counter(answer.status for answer in rolling.load.failed)
    print(f"{len(answered)} answers, {len(missing)} not in the log, {len(twice)} twice; failed: {dict(statuses)}")
    print(f"the rollout: {phase}")
    return int(bool(missing or twice or statuses) or phase == "FAILED")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
