"""Baselines from a version's own calls."""

from collections.abc import Sequence

import orjson

from understudy.core.drift.version_drift import MAX_INPUTS
from understudy.core.prediction_log.input_sampling import InputSample
from understudy.core.schema.compile import compile_input_schema
from understudy.ports.prediction_log.prediction_history import LoggedScores
from understudy.registry.baselines import profile_log

NAMES = [f"f{number:03}" for number in range(MAX_INPUTS + 20)]


class History:
    """Ten calls of each of 640 entities, and the inputs of some of them."""

    async def scores(self, version_id: int, since: float, until: float, at_most: int) -> LoggedScores:
        return LoggedScores([[0.1 * number for number in range(100)]] * 64, 6_400)

    async def inputs(self, version_id: int, since: float, until: float, at_most: int) -> Sequence[InputSample]:
        text = orjson.dumps(dict.fromkeys(NAMES, 1.5))
        return [InputSample(f"user-{number}", text) for number in range(250)]


async def test_the_log_sets_no_more_baselines_of_inputs_than_are_looked_at():
    schema = compile_input_schema({"features": [{"name": name, "dtype": "float32"} for name in reversed(NAMES)]})

    found = await profile_log(History(), 7, schema.features, 0.0, 1.0)

    assert list(found.baselines.inputs) == NAMES[:MAX_INPUTS]
    assert found.inputs == 250
