"""Looks for two inputs that a model has the wrong way round: with their values exchanged it answers as expected."""

from collections.abc import Mapping, Sequence
from itertools import combinations, islice
from typing import Any, Final

import orjson

from understudy.core.loading.cases import Case, difference
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.features import Feature
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.core.schema.schema import merge_with_stored, packed_content
from understudy.core.schema.tensors import Row
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, Violation
from understudy.loading.step_calls import call_seconds
from understudy.ports.upstream.model_backend import ModelBackend

MAX_PAIRS: Final = 120
"""Pairs of inputs that are tried: all of sixteen."""
CASES: Final = 3
"""Cases that have to be right with the same two exchanged."""
MIN_CASES: Final = 2


async def exchanged_inputs(
    version: ModelVersion, backend: ModelBackend, failed: Sequence[tuple[Case, Mapping[str, Any]]]
) -> str:
    """Return which two inputs are exchanged, in words; empty: no two of them are, or too few cases say so.

    Args:
        version: Its schema says which inputs may stand in one another's place.
        backend: Its servers.
        failed: Cases that are answered otherwise than expected.
    """
    places = [(one, tensor.spec.datatype) for tensor in version.input_schema.packed for one in tensor.features]
    pairs = (
        (first, second)
        for (first, one), (second, other) in combinations(places, 2)
        if one is other and first.shape == second.shape
    )
    try:
        for first, second in islice(pairs, MAX_PAIRS):
            if await _is_right(version, backend, [case for case, _ in failed], (first, second)):
                return f"with {first.name!r:.60} and {second.name!r:.60} exchanged it answers as expected"
    except (BackendUnavailable, DeadlineExceeded):
        return ""
    return ""


async def _is_right(
    version: ModelVersion, backend: ModelBackend, cases: Sequence[Case], pair: tuple[Feature, Feature]
) -> bool:
    """Whether cases in which two inputs differ are answered as expected with these exchanged."""
    right = 0
    for case in cases:
        row = _exchanged_row(version, case, pair)
        if row is None:
            continue
        try:
            tensor = await backend.infer([row], call_seconds(version))
            (answer,) = predictions_of(version.output_schema, tensor, 1, batch=version.input_schema.batch)
        except BadAnswer:
            return False
        if not isinstance(answer, Prediction) or difference(case, orjson.loads(answer.json)) is not None:
            return False
        right += 1
        if right == CASES:
            return True
    return right >= MIN_CASES


def _exchanged_row(version: ModelVersion, case: Case, pair: tuple[Feature, Feature]) -> Row | None:
    """Return a case's tensors with two inputs exchanged; ``None``: they are equal, or have no place in each other's."""
    problems: list[Violation] = []
    merged, _, _ = merge_with_stored(version.input_schema.features, case.inputs, None, problems)
    first, second = (feature.name for feature in pair)
    if merged[first] == merged[second]:
        return None
    exchanged = {**merged, first: merged[second], second: merged[first]}
    row = tuple(packed_content(tensor, exchanged, problems) for tensor in version.input_schema.packed)
    return None if problems else row
