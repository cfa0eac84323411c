"""Screens are drawn, and what draws them is loaded, beside the event loop of predictions."""

import json
import subprocess
import sys

import pytest

LOADED_BEFORE_A_THREAD_WORKS = """
import asyncio, json, sys
from understudy.entrypoints.proxy.control import experiments, registry

class Call:
    model_name, key_id = "visits", "ci"
    async def run(self, *_):
        return sorted(name for name in sys.modules if name.startswith(("typer", "understudy.entrypoints.cli")))

async def main():
    sizes = experiments.SizesAsked("converted", None, 60.0, False, 5, None)
    return [
        await registry.check(Call(), "2", None, 80),
        await experiments.ask_report(Call(), b'{"metric": "converted"}', 80, declares=False),
        await experiments.plan_test(Call(), sizes, 80),
    ]
print(json.dumps(asyncio.run(main())))
"""


@pytest.mark.deep
def test_the_event_loop_of_predictions_loads_nothing_that_draws():
    program = [sys.executable, "-c", LOADED_BEFORE_A_THREAD_WORKS]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True)

    assert json.loads(done.stdout) == [[], [], []]
