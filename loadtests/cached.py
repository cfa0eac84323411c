"""P3: what an answer from the cache costs, in the process and from Redis, and that each is in the log."""

from collections.abc import Mapping

from loadtests.checkouts import Checkout, Sides
from loadtests.rounds import Contender, Ledger, cpu_pairs, details, on_both, take_turns
from loadtests.scene import BENCH, CACHED, Proxy, Scene
from loadtests.section import Check, Compared, Effort, Findings, Section, Target
from loadtests.wrk import Load

_KNOWN = Load(seed=7)
"""The same inputs in every run, so that all answers are known before the first round."""
_INPUTS = 997
"""How many different ones predict.lua sends."""
_MISSED_AGAIN = 1.1
"""Misses for each input: some are asked for again before the first answer is there."""
_FILL_SECONDS = 2
_REDIS_TIMEOUT_SECONDS = 0.4
"""Under the version's deadline; with the proxy's own 10 ms a machine that others use makes misses of hits."""
_HITS = 'cache_requests_total{model="cached",result="hit"'
_LOOK_UPS = 'cache_requests_total{model="cached"'


def run(scene: Scene, effort: Effort) -> Findings:
    """Measure a hit in each level beside a constant answer of nginx, and beside the same proxy without a cache."""
    in_process = scene.proxy("cache-in-process")
    shared = _with_redis(scene) if scene.valkey_url is not None else None
    proxies = {"in the process": in_process, **({"from Redis": shared} if shared is not None else {})}
    ledger = Ledger(scene, list(proxies.values()))
    hits = _contender("hit in the process", in_process, CACHED)
    constant = Contender("nginx, constant answer", scene.nginx_url(2), scene.nginx.pid)
    contenders = [hits, constant]
    if shared is not None:
        from_redis = _contender("hit from Redis", shared, CACHED)
        uncached = _contender("cache off", shared, BENCH)
        contenders += [from_redis, uncached]
    for one in contenders:
        one.load(_FILL_SECONDS)
    take_turns(scene, contenders, effort)

    found = Findings(
        targets=[Target("P3", "hit in the process ÷ nginx constant", hits.server_us, "µs", 2.5, constant.server_us)],
        checks=[*ledger.checks(contenders), *_hits_are_logged(ledger, proxies)],
        detail=details(contenders),
    )
    if shared is not None:
        found.targets.append(
            Target("P3", "hit from Redis ÷ cache off", from_redis.server_us, "µs", 1.15, uncached.server_us)
        )
    else:
        found.notes.append("no Valkey or Redis server on this machine: a hit from Redis was not measured")
    return found


def _contender(name: str, proxy: Proxy, model: str) -> Contender:
    return Contender(name, proxy.url(model), proxy.pid, settle=proxy.await_log, what=_KNOWN)


def _with_redis(scene: Scene, checkout: Checkout | None = None) -> Proxy:
    """Return a proxy without the first level, so that every hit is Redis'; it waits for that on a busy machine too."""
    return scene.proxy(
        "cache-in-redis",
        checkout=checkout,
        with_valkey=True,
        memory_cache_bytes=0,
        redis_timeout_seconds=_REDIS_TIMEOUT_SECONDS,
    )


def _hits_are_logged(ledger: Ledger, proxies: Mapping[str, Proxy]) -> list[Check]:
    counted = {name: (int(one.metric(_HITS)), int(one.metric(_LOOK_UPS))) for name, one in proxies.items()}
    hits, rows = sum(hits for hits, _ in counted.values()), ledger.rows().get("hit", 0)
    return [
        Check("every hit is a row in PredictionLog", rows == hits, f"{hits:,} hits, {rows:,} rows"),
        *(
            Check(
                f"each input was missed once, {name}",
                asked - hits <= _MISSED_AGAIN * _INPUTS,
                f"{asked - hits:,} misses",
            )
            for name, (hits, asked) in counted.items()
        ),
    ]


def compare(scene: Scene, effort: Effort, checkouts: Sides[Checkout]) -> Compared:
    """Measure a hit in each level with both checkouts' proxies."""
    levels = {"in the process": checkouts.map(lambda one: scene.proxy("cache-in-process", checkout=one))}
    if scene.valkey_url is not None:
        levels["from Redis"] = checkouts.map(lambda one: _with_redis(scene, one))
    proxies = [proxy for both in levels.values() for proxy in both]
    ledger = Ledger(scene, proxies)
    hits = {name: on_both(f"hit {name}", both, CACHED, _KNOWN) for name, both in levels.items()}
    contenders = [one for both in hits.values() for one in both]
    for one in contenders:
        one.load(_FILL_SECONDS)
    take_turns(scene, contenders, effort)
    return Compared([cpu_pairs("P3", f"hit {name}", both) for name, both in hits.items()], ledger.checks(contenders))


SECTION = Section("P3", "answers from the cache", run, compare)
