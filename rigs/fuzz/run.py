"""``make fuzz``: attack a proxy with one worker and with two, and print what held."""

import argparse
import asyncio
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg

from loadtests.result import about, say, write_result
from rigs.fuzz.attack import SHOWN_BYTES, Tally, send_cases, send_wire
from rigs.fuzz.bombs import bomb_cases, grpc_bomb_cases, over_http_of, send_bombs, send_bombs_at_once
from rigs.fuzz.burst import bursts, good_calls, grpc_bursts, naming_bursts, unary_paths, unread_answers
from rigs.fuzz.cases import (
    Case,
    batch_cases,
    broken_json_cases,
    control_cases,
    header_cases,
    outcome_cases,
    predict_cases,
    rank_cases,
)
from rigs.fuzz.dialect_cases import (
    broken_dialect_cases,
    good_but_compressed_cases,
    invocation_cases,
    lying_binary_cases,
    oip_cases,
    v1_cases,
)
from rigs.fuzz.drawing import draw
from rigs.fuzz.files import file_cases, read_file
from rigs.fuzz.grpc_calls import grpc_cases, label_values, send_grpc
from rigs.fuzz.models import MIXED, OFFERS, attacked_models
from rigs.fuzz.wire import wire_cases
from rigs.fuzz.world import Usage, World, a_world
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.embedded.valkey import EmbeddedValkey, find_server
from understudy.adapters.migrations import upgrade

CONNECTIONS, WIRE_CONNECTIONS = 48, 96
LIVEZ_SECONDS = 0.25
"""Longest answer to ``/livez`` during an attack, beyond what a server that does nothing took in the same moment."""
GROWTH_BYTES = 32 * 1_048_576
"""By which a worker's memory may have grown after everything, beyond its state after a first round, and at any moment
while bombs are inflated."""
DESCRIPTORS_LEFT = 8
"""By which the number of open descriptors may differ afterwards."""
SETTLE_SECONDS = 20.0
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_WORDS = frozenset(re.findall(r"`(\w+)`", Path("docs/reference/metrics.md").read_text(encoding="utf-8")))
"""What labels may say, by the reference."""
_CODE = re.compile(r"E\d{3}")
_SHARES: Mapping[str, float] = {
    "predict": 0.36,
    "broken json": 0.14,
    "batch": 0.08,
    "rank": 0.08,
    "outcomes": 0.06,
    "control": 0.04,
    "header fields": 0.08,
    "wire": 0.16,
    "oip": 0.16,
    "oip, bytes that lie": 0.04,
    "v1": 0.14,
    "invocations": 0.04,
    "broken dialects": 0.07,
    "grpc": 0.2,
    "bombs": 0.004,
    "bombs at once": 0.008,
    "compressed": 0.004,
}
"""Of the number that is asked for, which is of our own paths; calls in others' protocols come on top."""


class Check(NamedTuple):
    """A property, what was found of it, and whether it holds."""

    text: str
    found: str
    holds: bool
    is_timed: bool = False
    """Whether a busy machine may break it."""


class Round(NamedTuple):
    """An attack on one proxy."""

    workers: int
    tallies: Sequence[Tally]
    checks: Sequence[Check]
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return all(check.holds for check in self.checks) and not any(tally.broken for tally in self.tallies)


def attack(
    world: World,
    workers: int,
    examples: int,
    seed: int,
    *,
    with_bursts: bool = True,
    kinds: Collection[str] = tuple(_SHARES),
) -> Round:
    """Attack one proxy with about so many examples, or with what these kinds have of them."""
    began = time.monotonic()
    # What the first calls open and fill (connections, caches, code) is no leak.
    warm_up = _send_all(world, max(examples // 20, 200), seed + 1, "warming up", kinds)
    calls = good_calls()
    warm_up += [asyncio.run(send_cases(world.port, "warming up: pools", calls, len(calls))) for _ in range(workers)]
    if with_bursts:
        warm_up += _send_bursts(world)
    before, series = world.usage(), world.series()
    peak = Peak(world)
    with world.bystander() as seen, peak.watched():
        tallies = _send_all(world, examples, seed, f"{workers} worker(s)", kinds)
        if with_bursts:
            tallies += _send_bursts(world)
    checks = [
        *_bystander_checks(seen),
        *_resource_checks(world, before, peak.usage, workers),
        *_bomb_checks(tallies, workers),
        _series_check(series, world.series()),
        *_log_checks(world, [*warm_up, *tallies]),
    ]
    return Round(workers, tallies, checks, time.monotonic() - began)


class Peak:
    """The most memory and descriptors that a proxy had, looked at every now and then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stopped = threading.Event()
        self.usage = Usage(0, 0)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look meanwhile."""
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(0.2):
            now = self._world.usage()
            self.usage = Usage(max(self.usage.rss_bytes, now.rss_bytes), max(self.usage.descriptors, now.descriptors))


def _send_all(world: World, examples: int, seed: int, title: str, kinds: Collection[str]) -> list[Tally]:
    tallies = []
    for name, share in _SHARES.items():
        if name not in kinds:
            continue
        count = max(round(examples * share), 1)
        tally = _measured(world, partial(_SENDERS[name], world, name, count, seed))
        tallies.append(tally)
        say(f"{title}: {name}: {tally.sent} in {tally.seconds:.0f} s, {tally.broken} with findings")
    return tallies


def _measured(world: World, send: Callable[[], Tally]) -> Tally:
    """Send, and note by how much the workers' memory grew meanwhile."""
    before = world.usage()
    world.forget_peak()
    tally = send()
    tally.grew_bytes = max(0, world.usage().peak_bytes - before.rss_bytes)
    return tally


def _whole(strategies: Callable[[], Sequence[Any]]) -> Callable[[World, str, int, int], Tally]:
    def send(world: World, name: str, count: int, seed: int) -> Tally:
        drawn: list[Case] = []
        kinds = strategies()
        for place, strategy in enumerate(kinds):
            drawn += draw(strategy, -(-count // len(kinds)), seed * 31 + place)
        return asyncio.run(send_cases(world.port, name, drawn, CONNECTIONS))

    return send


def _wire(world: World, name: str, count: int, seed: int) -> Tally:
    drawn = draw(wire_cases(slow_share=0.02), count, seed)
    return asyncio.run(send_wire(world.port, name, drawn, WIRE_CONNECTIONS))


def _grpc(world: World, name: str, count: int, seed: int) -> Tally:
    return asyncio.run(send_grpc(world.grpc_port, name, draw(grpc_cases(), count, seed), CONNECTIONS))


def _bombs(world: World, name: str, count: int, seed: int, *, at_once: bool) -> Tally:
    over_http = draw(bomb_cases(at_once=at_once), over_http_of(count), seed)
    over_grpc = draw(grpc_bomb_cases(at_once=at_once), count - len(over_http), seed + 1)
    send = send_bombs_at_once if at_once else send_bombs
    return asyncio.run(send((world.port, world.grpc_port), name, over_http, over_grpc))


def _send_bursts(world: World) -> list[Tally]:
    senders: dict[str, Callable[[], Coroutine[Any, Any, Tally]]] = {}
    for name, cases in bursts().items():
        senders[name] = partial(send_cases, world.port, f"at once: {name}", cases, len(cases))
    for name, messages in {**grpc_bursts(), **naming_bursts()}.items():
        senders[name] = partial(send_grpc, world.grpc_port, f"at once: {name}", messages, len(messages))
    tallies = []
    for send in senders.values():
        tally = _measured(world, partial(_run, send))
        tallies.append(tally)
        say(f"{tally.name}: {tally.sent} in {tally.seconds:.1f} s, slowest {tally.slowest_seconds:.1f} s")
    tallies.append(asyncio.run(unread_answers(world.port, "answers that nobody reads", 50, 20)))
    return tallies


def _run(send: Callable[[], Coroutine[Any, Any, Tally]]) -> Tally:
    return asyncio.run(send())


_SENDERS: Mapping[str, Callable[[World, str, int, int], Tally]] = {
    "predict": _whole(lambda: [predict_cases(model) for model in attacked_models()]),
    "broken json": _whole(lambda: [broken_json_cases()]),
    "batch": _whole(lambda: [batch_cases(model) for model in attacked_models()[:3]]),
    "rank": _whole(lambda: [rank_cases(model) for model in attacked_models() if model.name in (OFFERS, MIXED)]),
    "outcomes": _whole(lambda: [outcome_cases()]),
    "control": _whole(lambda: [control_cases()]),
    "header fields": _whole(lambda: [header_cases()]),
    "wire": _wire,
    "oip": _whole(lambda: [oip_cases(model) for model in attacked_models()]),
    "oip, bytes that lie": _whole(lambda: [lying_binary_cases()]),
    "v1": _whole(lambda: [v1_cases(model) for model in attacked_models()]),
    "invocations": _whole(lambda: [invocation_cases(model) for model in attacked_models()[:3]]),
    "broken dialects": _whole(lambda: [broken_dialect_cases()]),
    "grpc": _grpc,
    "bombs": partial(_bombs, at_once=False),
    "bombs at once": partial(_bombs, at_once=True),
    "compressed": _whole(lambda: [good_but_compressed_cases()]),
}


def _bystander_checks(seen: Mapping[str, Any]) -> list[Check]:
    told = [seconds - machine for machine, seconds in seen["livez"]]
    slowest, machine = max(told, default=0.0), max((machine for machine, _ in seen["livez"]), default=0.0)
    place = round(100 * told.index(slowest) / len(told)) if told else 0
    statuses = [status for status, _ in seen["predict"]]
    bad = [status for status in statuses if status != 200]  # noqa: PLR2004 - answered
    worst = max((seconds for _, seconds in seen["predict"]), default=0.0)
    return [
        Check(
            f"/livez answers within {LIVEZ_SECONDS * 1000:.0f} ms",
            f"slowest {slowest * 1000:.0f} ms of {len(told)} (the machine: {machine * 1000:.0f} ms), {place} % into it",
            bool(told) and slowest <= LIVEZ_SECONDS,
            is_timed=True,
        ),
        Check(
            "others are served",
            f"{len(statuses) - len(bad)} of {len(statuses)}, slowest {worst * 1000:.0f} ms",
            bool(statuses) and len(bad) <= len(statuses) // 100,
        ),
    ]


def _resource_checks(world: World, before: Usage, peak: Usage, workers: int) -> list[Check]:
    give_up = time.monotonic() + SETTLE_SECONDS
    now = world.usage()
    while now.descriptors > before.descriptors + DESCRIPTORS_LEFT and time.monotonic() < give_up:
        time.sleep(0.2)
        now = world.usage()
    grown = now.rss_bytes - before.rss_bytes
    mib = 1_048_576
    return [
        Check(
            f"memory grows by at most {GROWTH_BYTES // mib} MiB a worker",
            f"{before.rss_bytes // mib} → {now.rss_bytes // mib} MiB, peak {peak.rss_bytes // mib}",
            grown <= GROWTH_BYTES * workers,
        ),
        Check(
            "no connection is left open",
            f"{before.descriptors} → {now.descriptors} descriptors, peak {peak.descriptors}",
            now.descriptors <= before.descriptors + DESCRIPTORS_LEFT,
        ),
    ]


def _bomb_checks(tallies: Sequence[Tally], workers: int) -> list[Check]:
    mib = 1_048_576
    return [
        Check(
            f"{tally.name} take at most {GROWTH_BYTES // mib} MiB a worker meanwhile",
            f"{tally.grew_bytes // mib} MiB",
            tally.grew_bytes <= GROWTH_BYTES * workers,
        )
        for tally in tallies
        if tally.name in ("bombs", "bombs at once")
    ]


def _series_check(before: Mapping[str, float], after: Mapping[str, float]) -> Check:
    """Series may begin for an error that had not occurred; nothing in a label may be a caller's choice."""
    known = {value for name in before for _, value in _LABEL.findall(name)} | _WORDS
    known |= {model.name for model in attacked_models()} | label_values() | {path[1:] for path in unary_paths()}
    known |= {feature["name"] for model in attacked_models() for feature in model.input_schema["features"]}
    foreign = [
        name
        for name in after.keys() - before.keys()
        if any(value not in known and not _CODE.fullmatch(value) for _, value in _LABEL.findall(name))
    ]
    found = f"{len(before)} → {len(after)} series" + (f": {sorted(foreign)[:3]}" if foreign else "")
    return Check("no metric series has a caller's word in it", found, not foreign)


def _log_checks(world: World, tallies: Sequence[Tally]) -> list[Check]:
    told = [one for tally in tallies for one in tally.ids]
    logged = world.logged_ids(set(told))
    lost = set(told) - set(logged)
    (buried,) = world.query("SELECT count(*) FROM PredictionDeadLetter")
    dropped = sum(
        value
        for name, value in world.series().items()
        if name.startswith("prediction_log_rows_total") and 'outcome="dropped"' in name
    )
    return [
        Check("every prediction told of is in the log", f"{len(lost)} of {len(set(told))} are not", not lost),
        Check("no prediction is told or logged twice", *_twice(told, logged)),
        Check(
            "no row is buried or dropped", f"{buried[0]} buried, {dropped:.0f} dropped", not buried[0] and not dropped
        ),
    ]


def _twice(told: Sequence[str], logged: Sequence[str]) -> tuple[str, bool]:
    twice = len(told) - len(set(told)), len(logged) - len(set(logged))
    return f"{twice[0]} told, {twice[1]} logged", twice == (0, 0)


def attack_files(count: int, seed: int, folder: Path) -> Tally:
    """Read hostile files as the command line does; no server is needed."""
    tally = Tally("files")
    began = time.monotonic()
    for case in draw(file_cases(), count, seed):
        started = time.monotonic()
        problem = read_file(case, folder)
        tally.note([problem] if problem else [], case.content[:SHOWN_BYTES], time.monotonic() - started)
    tally.seconds = time.monotonic() - began
    return tally


def table(rounds: Sequence[Round], files: Tally) -> str:
    """Return everything that was found, as text."""
    line = "{:<9}{:<46}{:>8}{:>7}{:>9}{:>10}  {}"
    lines = [line.format("workers", "class", "sent", "found", "slowest", "memory", "statuses")]
    for one, workers in [
        *((tally, str(round_.workers)) for round_ in rounds for tally in round_.tallies),
        (files, "-"),
    ]:
        statuses = " ".join(f"{status}:{count}" for status, count in sorted(one.statuses.items()))
        slowest, grew = f"{one.slowest_seconds:.2f} s", f"+{one.grew_bytes // 1_048_576} MiB"
        lines.append(line.format(workers, one.name, one.sent, one.broken, slowest, grew, statuses))
    lines.append("")
    for round_ in rounds:
        lines += [
            f"{round_.workers:<9}{'ok' if check.holds else 'NOT':<5}{check.text:<54}{check.found}"
            for check in round_.checks
        ]
    for one in [*(tally for round_ in rounds for tally in round_.tallies), files]:
        for problem, wire in one.findings.items():
            lines.append(f"\n{one.name}: {problem}\n  {wire[:SHOWN_BYTES]!r}")
    total = sum(tally.sent for round_ in rounds for tally in round_.tallies) + files.sent
    return "\n".join([*lines, "", f"{total:,} examples"])


def as_json(rounds: Sequence[Round], files: Tally, seed: int) -> dict[str, Any]:
    """Return everything that was found, for programs."""
    return {
        **about(),
        "seed": seed,
        "rounds": [
            {
                "workers": round_.workers,
                "seconds": round(round_.seconds, 1),
                "classes": [_tally_json(tally) for tally in round_.tallies],
                "checks": [check._asdict() for check in round_.checks],
            }
            for round_ in rounds
        ],
        "files": _tally_json(files),
    }


def _tally_json(tally: Tally) -> dict[str, Any]:
    return {
        "class": tally.name,
        "sent": tally.sent,
        "found": tally.broken,
        "seconds": round(tally.seconds, 1),
        "slowest_seconds": round(tally.slowest_seconds, 3),
        "grew_bytes": tally.grew_bytes,
        "statuses": dict(tally.statuses),
        "findings": {problem: repr(wire[:SHOWN_BYTES]) for problem, wire in tally.findings.items()},
    }


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[EmbeddedPostgres, str | None]]:
    with ExitStack() as opened:
        postgres = EmbeddedPostgres(folder / "pg")
        opened.callback(postgres.remove)
        postgres.start()
        valkey = opened.enter_context(EmbeddedValkey()).url if find_server() is not None else None
        yield postgres, valkey


def main() -> None:
    """Attack, print the table, write the result; the exit status says whether everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=52_000, help="in all, half for each proxy")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the same examples again")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--only", nargs="+", choices=tuple(_SHARES), default=tuple(_SHARES), help="these kinds alone, without bursts"
    )
    parser.add_argument("--bursts", action="store_true", help="many costly bodies at once, beside those kinds")
    parser.add_argument("--json", type=Path, help="where the result goes; by default a file in loadtests/results")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="us-fuzz-", dir="/tmp"))
    folder.chmod(0o755)
    rounds = []
    try:
        with _servers(folder) as (postgres, valkey):
            for workers in asked.workers:
                database_url = asyncio.run(_database(postgres.url, f"fuzz_{workers}"))
                place = folder / str(workers)
                place.mkdir()
                with a_world(place, database_url, valkey, workers=workers) as world:
                    each_proxy = asked.examples // len(asked.workers)
                    bursts_too = asked.bursts or set(asked.only) == set(_SHARES)
                    rounds.append(
                        attack(world, workers, each_proxy, asked.seed, with_bursts=bursts_too, kinds=asked.only)
                    )
        files = attack_files(asked.examples // 25, asked.seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(rounds, files))
    write_result(as_json(rounds, files, asked.seed), asked.json, "fuzz-")
    say(f"seed {asked.seed}")
    sys.exit(0 if all(round_.holds for round_ in rounds) and not files.broken else 1)


async def _database(server_url: str, name: str) -> str:
    connection = await asyncpg.connect(server_url, timeout=20)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
    url = urlsplit(server_url)._replace(path=f"/{name}").geturl()
    await upgrade(url)
    return url


if __name__ == "__main__":
    main()
