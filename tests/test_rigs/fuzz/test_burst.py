"""Bursts of what names a model go to every unary method that there is, in messages of the lengths that matter."""

import gzip
from typing import Any

from rigs.fuzz.burst import BURST, naming_bursts, unary_paths
from understudy.adapters._proto import methods
from understudy.entrypoints.proxy.rpc.inference import InferenceService
from understudy.entrypoints.proxy.rpc.prediction import PredictionServices

LIMIT_BYTES = 1_048_576
NEVER: Any = None  # services are asked for their methods alone


def test_they_go_to_every_method_that_reads_a_message_and_to_those_that_do_not():
    tensorflow = PredictionServices(NEVER)
    offered = {
        methods.OIP_SERVICE: InferenceService(NEVER, NEVER).methods,
        methods.TFSERVING_PREDICTION_SERVICE: tensorflow.prediction,
        methods.TFSERVING_MODEL_SERVICE: tensorflow.model,
    }
    reading = {f"/{name}/{one.name}" for name, several in offered.items() for one in several if one.reads}

    for cases in naming_bursts().values():
        assert len(cases) == BURST
        assert {case.path for case in cases} == unary_paths().keys() >= reading


def test_each_kind_has_long_messages_compressed_ones_and_ones_that_the_event_loop_parses():
    for cases in naming_bursts().values():
        lengths = [len(gzip.decompress(one.message) if one.coding else one.message) for one in cases]
        assert max(lengths) <= LIMIT_BYTES
        assert sum(length > LIMIT_BYTES - 1_000 for length in lengths) > BURST // 2
        assert sum(length <= 32_768 for length in lengths) >= BURST // 4
        assert sum(bool(one.coding) for one in cases) >= BURST // 4
