"""P1 with the lake on: processor time of a predict call by ``UNDERSTUDY_LOG``. ``make bench-lake-calls``.

Arguments: ``--rounds`` (7), ``--seconds`` (6), and ``--interval`` (2), seconds from one file of the lake to the next:
a proxy's default is a minute, and with two a short round has several, so that the lake's cost is rather more than it
would be. One proxy for each setting, under the load of P1 in turns; a round ends when every row is in Postgres, in
files of the lake, or both, so that its cost falls into the round that caused it. That is an interval after the load at
the latest: each proxy is left alone for so long, since idling and being asked for metrics costs processor time as well.
"""

import argparse
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.machine import what_is_missing
from loadtests.rounds import Contender, take_turns
from loadtests.scene import Proxy, Scene, a_scene
from loadtests.section import Effort
from understudy.shipping.lake_shipper import LOOK_SECONDS

MODES = ("postgres", "postgres+lake", "lake")
SHIPPED_SECONDS = 120


def proxy_of(scene: Scene, mode: str, interval_seconds: float) -> Proxy:
    """Start the proxy of a setting."""
    place: dict[str, Any] = (
        {} if mode == "postgres" else {"lake_url": scene.folder / "lake", "lake_interval_seconds": interval_seconds}
    )
    return scene.proxy(f"proxy-{mode}", log=mode, **place)


def await_shipped(proxy: Proxy, interval_seconds: float) -> None:
    """Wait for as long as rows gather, whatever the setting, and then until no row waits on the disk."""
    time.sleep(interval_seconds + LOOK_SECONDS)
    give_up = time.monotonic() + SHIPPED_SECONDS
    proxy.await_log()
    while proxy.metric("prediction_log_lake_spool_bytes"):
        if time.monotonic() > give_up:
            raise RuntimeError(f"rows are not in the lake {SHIPPED_SECONDS} s after the load ended")
        time.sleep(0.2)


def measure(folder: Path, effort: Effort, interval_seconds: float) -> list[str]:
    """Return a line for each setting."""
    with a_scene(folder, "oip") as scene:
        contenders = []
        for mode in MODES:
            proxy = proxy_of(scene, mode, interval_seconds)
            contenders.append(
                Contender(mode, proxy.url(), proxy.pid, settle=partial(await_shipped, proxy, interval_seconds))
            )
        take_turns(scene, contenders, effort)
    least = contenders[0]
    lines = []
    for one in contenders:
        ratios = sorted(mine.server_us / base.server_us for mine, base in zip(one.rounds, least.rounds, strict=True))
        lines.append(
            f"{one.name:14} {one.server_us:6.1f} µs CPU a call, {one.postgres_us:5.1f} of Postgres, "
            f"{one.per_second:6,.0f} answers a second; ÷ postgres {ratios[len(ratios) // 2]:.3f} "
            f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )
    return lines


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--interval", type=float, default=2)
    given = parser.parse_args()
    missing = what_is_missing()
    if missing:
        raise SystemExit("\n  ".join(["the benchmark needs", *missing]))
    folder = Path(tempfile.mkdtemp(prefix="us-lake-calls-"))
    folder.chmod(0o755)
    try:
        print(*measure(folder, Effort(given.rounds, given.seconds), given.interval), sep="\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
