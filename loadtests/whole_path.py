"""P1: the whole path without a cache, beside nginx, an empty ASGI application, and the path as the seed codes it."""

from loadtests.checkouts import Checkout, Sides
from loadtests.rounds import Contender, Ledger, cpu_pairs, details, on_both, take_turns
from loadtests.scene import Scene
from loadtests.section import Compared, Effort, Findings, Section, Target
from loadtests.stub_model import counts_of


def run(scene: Scene, effort: Effort) -> Findings:
    """Measure the four in turns."""
    proxy = scene.proxy()
    ledger = Ledger(scene, [proxy])
    calls_before, rows_before = counts_of(scene.stubs["champion"])
    product = Contender("understudy", proxy.url(), proxy.pid, settle=proxy.await_log)
    split = Contender("nginx A/B (split_clients)", scene.nginx_url(0), scene.nginx.pid)
    echo = Contender("uvicorn echo (empty ASGI app)", scene.echo.url, scene.echo.pid)
    contenders = [product, split, echo]
    take_turns(scene, contenders, effort)
    calls, rows = counts_of(scene.stubs["champion"])
    seed = Contender("the seed's path", scene.seed.url, scene.seed.pid)
    again = Contender("understudy, beside the seed", proxy.url(), proxy.pid, settle=proxy.await_log)
    take_turns(scene, [seed, again], effort)
    return Findings(
        targets=[
            Target("P1", "CPU per request ÷ nginx A/B", product.server_us, "µs", 1.4, split.server_us),
            Target("P1", "CPU per request ÷ uvicorn echo", product.server_us, "µs", 0.9, echo.server_us),
            Target("P1", "CPU per request ÷ the seed as coded", again.server_us, "µs", 1 / 45, seed.server_us),
        ],
        checks=ledger.checks([*contenders, seed, again]),
        notes=[
            f"Postgres beside it, per request: {product.postgres_us:.1f} µs, the seed's {seed.postgres_us:.1f} µs",
            f"rows per model call: {(rows - rows_before) / max(1, calls - calls_before):.1f}",
            "answers a second: " + ", ".join(f"{one.name} {one.per_second:,.0f}" for one in [*contenders, seed]),
        ],
        detail=details([*contenders, seed, again]),
    )


def compare(scene: Scene, effort: Effort, checkouts: Sides[Checkout]) -> Compared:
    """Measure the proxies of both checkouts in turns."""
    proxies = checkouts.map(lambda one: scene.proxy(checkout=one))
    ledger = Ledger(scene, proxies)
    contenders = on_both("understudy", proxies)
    take_turns(scene, contenders, effort)
    return Compared([cpu_pairs("P1", "CPU per request", contenders)], ledger.checks(contenders))


SECTION = Section("P1", "the whole path", run, compare)
