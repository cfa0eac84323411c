"""P1: the whole path without a cache, beside nginx, an empty ASGI application, and the path as the seed codes it.

Most callers send something in each head that no other has (a trace, a request id, an entity): that is what the first
figures are of. The others are of callers whose heads are all the same, to everyone alike.
"""

from loadtests.checkouts import Checkout, Sides
from loadtests.rounds import Contender, Ledger, cpu_pairs, details, on_both, take_turns
from loadtests.scene import Proxy, Scene
from loadtests.section import Compared, Effort, Findings, Section, Target
from loadtests.stub_model import counts_of
from loadtests.wrk import FULL, Load

_OF_NGINX, _OF_ECHO = 1.8, 1.3
_REPEATED = FULL._replace(heads="repeats")


def run(scene: Scene, effort: Effort) -> Findings:
    """Measure the four in turns, and all but the seed's again with heads that repeat."""
    proxy = scene.proxy()
    ledger = Ledger(scene, [proxy])
    calls_before, rows_before = counts_of(scene.stubs["champion"])
    differing = product, split, echo = _beside(scene, proxy, FULL)
    take_turns(scene, differing, effort)
    calls, rows = counts_of(scene.stubs["champion"])
    seed = Contender("the seed's path", scene.seed.url, scene.seed.pid)
    again = _product("understudy, beside the seed", proxy, FULL)
    take_turns(scene, [seed, again], effort)
    repeated = _beside(scene, proxy, _REPEATED, ", heads that repeat")
    take_turns(scene, repeated, effort)
    return Findings(
        targets=[
            Target("P1", "CPU per request ÷ nginx A/B", product.server_us, "µs", _OF_NGINX, split.server_us),
            Target("P1", "CPU per request ÷ uvicorn echo", product.server_us, "µs", _OF_ECHO, echo.server_us),
            Target("P1", "CPU per request ÷ the seed as coded", again.server_us, "µs", 1 / 45, seed.server_us),
            *(
                Target("P1", f"heads that repeat: CPU ÷ {name}", repeated[0].server_us, "µs", bound, peer.server_us)
                for name, bound, peer in (
                    ("nginx A/B", _OF_NGINX, repeated[1]),
                    ("uvicorn echo", _OF_ECHO, repeated[2]),
                )
            ),
        ],
        checks=ledger.checks([*differing, seed, again, *repeated]),
        notes=[
            f"Postgres beside it, per request: {product.postgres_us:.1f} µs, the seed's {seed.postgres_us:.1f} µs",
            f"rows per model call: {(rows - rows_before) / max(1, calls - calls_before):.1f}",
            "answers a second: " + ", ".join(f"{one.name} {one.per_second:,.0f}" for one in [*differing, seed]),
        ],
        detail=details([*differing, seed, again, *repeated]),
    )


def _beside(scene: Scene, proxy: Proxy, what: Load, suffix: str = "") -> list[Contender]:
    """Return the product, nginx and the empty application under the same load."""
    return [
        _product(f"understudy{suffix}", proxy, what),
        Contender(f"nginx A/B (split_clients){suffix}", scene.nginx_url(0), scene.nginx.pid, what=what),
        Contender(f"uvicorn echo (empty ASGI app){suffix}", scene.echo.url, scene.echo.pid, what=what),
    ]


def _product(name: str, proxy: Proxy, what: Load) -> Contender:
    return Contender(name, proxy.url(), proxy.pid, settle=proxy.await_log, what=what)


def compare(scene: Scene, effort: Effort, checkouts: Sides[Checkout]) -> Compared:
    """Measure the proxies of both checkouts in turns, with heads that differ and with heads that repeat."""
    proxies = checkouts.map(lambda one: scene.proxy(checkout=one))
    ledger = Ledger(scene, proxies)
    differing = on_both("understudy", proxies)
    repeated = on_both("understudy, heads that repeat", proxies, what=_REPEATED)
    contenders = [*differing, *repeated]
    take_turns(scene, contenders, effort)
    pairs = [
        cpu_pairs("P1", "CPU per request", differing),
        cpu_pairs("P1", "CPU per request, heads that repeat", repeated),
    ]
    return Compared(pairs, ledger.checks(contenders))


SECTION = Section("P1", "the whole path", run, compare)
