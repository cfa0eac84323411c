"""``make profile``: where each microsecond of a predict call goes, by stage and by function, and the docs' picture.

The proxy samples itself while it is loaded (``watched_proxy``): each time it has used so much processor time it notes
which of its functions runs. What the kernel and C libraries use counts for the function that called them. The other
threads' time is the kernel's own account.
"""

import argparse
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import orjson

from loadtests.machine import a_folder, threads_cpu_seconds
from loadtests.scene import Scene, a_scene
from loadtests.watched_proxy import SAMPLES_FILE
from loadtests.wrk import run_wrk

PICTURE = Path("docs/explanation/performance.svg")
RESULT = Path("loadtests/results/baseline-profile.json")
_WARM_UP_SECONDS = 2

STAGES: Mapping[str, Sequence[str]] = {
    "event loop, sockets": (
        "uvloop",
        "asyncio/runners.py",
        "entrypoints/proxy/processes/uvicorn_process.py",
    ),
    "HTTP: read and write": (
        "uvicorn/",
        "httptools",
        "entrypoints/proxy/server/backpressure.py",
        "entrypoints/proxy/server/connection.py",
        "entrypoints/proxy/server/parser_callbacks.py",
        "entrypoints/proxy/server/upgrade.py",
    ),
    "headers, receipt, answer": ("entrypoints/proxy/",),
    "parse the body": ("core/requests/strict_json.py", "core/requests/predict.py"),
    "check, pack, hash the inputs": ("core/schema/schema.py", "core/schema/features.py", "core/schema/tensors.py"),
    "route, ids, the request's story": (
        "core/routing/route.py",
        "core/prediction_log/prediction_id.py",
        "core/routing/policy.py",
        "serving/call.py",
        "serving/call_record.py",
        "serving/feature_fetch.py",
        "serving/shadow_calls.py",
        "serving/turn.py",
        "serving/turn_group.py",
        "serving/version_calls.py",
    ),
    "batches and callbacks": (
        "serving/upstream/batching.py",
        "serving/upstream/batch_inference.py",
        "serving/upstream/row_deadlines.py",
        "serving/upstream/load_shedding.py",
        "serving/upstream/cached_inference.py",
        "serving/upstream/backend_pool.py",
    ),
    "model call: gRPC": (
        "grpc/",
        "adapters/model_servers/",
        "google/protobuf",
    ),
    "read the model's answer": ("core/schema/outputs.py", "core/schema/codec.py", "numpy/"),
    "log row and spool": (
        "core/prediction_log/spool_format.py",
        "adapters/disk/spool.py",
        "serving/prediction_log/group_commit.py",
    ),
    "metrics": ("adapters/telemetry/prometheus",),
}
"""What a function's file belongs to; the first that fits. What fits none is ``other``."""
OTHER = "other"
OTHER_THREADS = "shipping the log, in threads"


DEAREST = 30
"""Functions that are printed and written down; what is left of the main thread's time is one line."""
_ROOT = re.compile(r".*/(?:src/understudy|site-packages|lib/python3\.\d+)/")
"""What stands before the part of a path that tells files apart."""


class Share(NamedTuple):
    """A stage or a function, and its processor time for one request, in microseconds."""

    name: str
    us: float


class Profile(NamedTuple):
    """Where the time of one request went, each time the dearest first; ``functions`` are the main thread's alone."""

    stages: Sequence[Share]
    functions: Sequence[Share]


def stage_of(stack: Sequence[str]) -> str:
    """Return the stage of a sample: that of its innermost function whose file has one.

    Args:
        stack: The functions as ``path:name``, the innermost first.
    """
    for function in stack:
        for stage, marks in STAGES.items():
            if any(mark in function for mark in marks):
                return stage
    return OTHER


def function_of(stack: Sequence[str]) -> str:
    """Return the innermost function of a sample, with as much of its file's path as tells it apart."""
    return _ROOT.sub("", stack[0])


def profile_of(samples: Mapping[str, int], main_us: float, others_us: float) -> Profile:
    """Divide a request's time among stages, and that of the sampled thread among functions.

    Args:
        samples: How often each stack was seen; functions with ``;`` between them, the innermost first.
        main_us: What the sampled thread needed for one request.
        others_us: What all other threads needed.
    """
    us = main_us / sum(samples.values())
    stages, functions = (
        [Share(name, us * count) for name, count in _counted(samples, whose).items()]
        for whose in (stage_of, function_of)
    )
    return Profile(_dearest_first([*stages, Share(OTHER_THREADS, others_us)]), _dearest_first(functions))


def _counted(samples: Mapping[str, int], whose: Callable[[Sequence[str]], str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for stack, count in samples.items():
        counts[whose(stack.split(";"))] += count
    return counts


def _dearest_first(shares: Iterable[Share]) -> list[Share]:
    return sorted(shares, key=lambda one: -one.us)


def picture_of(shares: Sequence[Share], caption: str) -> str:
    """Return an SVG: one bar for each stage, and one that has them all side by side."""
    total = sum(one.us for one in shares)
    scale = 420 / max(one.us for one in shares)
    starts = accumulate((one.us for one in shares), initial=0.0)
    parts = [
        f'<rect x="{20 + 760 * start / total:.1f}" y="34" width="{760 * one.us / total:.1f}" height="26"'
        f' fill="{_colour(place)}"><title>{escape(one.name)}: {one.us:.1f} µs</title></rect>'
        for place, (one, start) in enumerate(zip(shares, starts, strict=False))
    ]
    for place, one in enumerate(shares):
        y = 84 + 24 * place
        parts += [
            f'<text x="252" y="{y + 13}" text-anchor="end">{escape(one.name)}</text>',
            f'<rect x="260" y="{y}" width="{one.us * scale:.1f}" height="18" fill="{_colour(place)}"/>',
            f'<text x="{266 + one.us * scale:.1f}" y="{y + 13}">{one.us:.1f} µs, {one.us / total:.0%}</text>',
        ]
    height = 84 + 24 * len(shares) + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" width="800" role="img"'
        f' font-family="system-ui, sans-serif" font-size="12.5"><rect width="800" height="{height}" fill="#fff"/>'
        f'<text x="20" y="22" font-size="14" font-weight="600">{escape(caption)}</text>' + "".join(parts) + "</svg>\n"
    )


def _colour(place: int) -> str:
    return f"hsl({210 + 29 * place % 360} 52% {52 + 6 * (place % 3)}%)"


def _sampled(scene: Scene, seconds: int) -> tuple[Profile, dict[str, float]]:
    samples_file = scene.folder / "samples.json"
    os.environ[SAMPLES_FILE] = str(samples_file)
    proxy = scene.proxy(module="loadtests.watched_proxy")
    run_wrk(proxy.url(), _WARM_UP_SECONDS)
    proxy.await_log()
    os.kill(proxy.pid, signal.SIGUSR2)
    before = threads_cpu_seconds(proxy.pid)
    answered = run_wrk(proxy.url(), seconds)
    proxy.await_log()
    after = threads_cpu_seconds(proxy.pid)
    os.kill(proxy.pid, signal.SIGUSR2)
    while not samples_file.exists():
        time.sleep(0.05)
    used = {thread: after[thread] - before.get(thread, 0.0) for thread in after}
    main_us, all_us = (1e6 * s / answered.requests for s in (used[proxy.pid], sum(used.values())))
    profile = profile_of(orjson.loads(samples_file.read_bytes()), main_us, all_us - main_us)
    return profile, {"cpu_us": round(all_us, 1), "requests_per_second": round(answered.requests / answered.seconds)}


def _table(profile: Profile, about: Mapping[str, float]) -> str:
    line = "{:8.1f} µs  {:5.1%}  {}"
    whole = about["cpu_us"]
    shown = profile.functions[:DEAREST]
    left = sum(one.us for one in profile.functions[DEAREST:])
    return "\n".join(
        [
            *(line.format(one.us, one.us / whole, one.name) for one in profile.stages),
            f"{whole:8.1f} µs in all, at {about['requests_per_second']:,} requests a second",
            "",
            f"the {len(shown)} dearest functions of the main thread, with what the kernel and C did for them",
            *(line.format(one.us, one.us / whole, one.name) for one in shown),
            line.format(left, left / whole, f"{len(profile.functions) - len(shown)} others"),
        ]
    )


def main() -> int:
    """Sample, write the picture and its figures, print the tables; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--look", action="store_true", help="print the tables and write nothing")
    asked = parser.parse_args()
    with a_folder("us-profile-") as folder, a_scene(folder, "oip") as scene:
        profile, about = _sampled(scene, asked.seconds)
    print(_table(profile, about))
    if not asked.look:
        caption = f"Processor time of one predict call: {about['cpu_us']:.0f} µs"
        PICTURE.write_text(picture_of(profile.stages, caption))
        document = {
            **about,
            "stages_us": {one.name: round(one.us, 2) for one in profile.stages},
            "functions_us": {one.name: round(one.us, 2) for one in profile.functions[:DEAREST]},
        }
        RESULT.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
