"""Two hundred good versions, no two alike, are validated at a real model server, and none is refused."""

from pathlib import Path

import pytest
from builders import a_version
from e2e.stack import a_stack
from worlds.trained_models import KINDS, trained

from understudy.adapters.artifacts.case_file import read_case_rows
from understudy.adapters.dev_server.example_models import example_cases, example_versions
from understudy.bootstrap.upstream.backends import validate_version
from understudy.core.loading.cases import CaseRows
from understudy.loading.steps import Steps
from understudy.settings import Settings

VERSIONS = 195
"""And the five example models."""
AT_A_SERVER = 13
STEPS = Steps(hard_calls=True, load_seconds=0.1)
SUFFIXES = ("json", "csv", "jsonl", "parquet")


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.exhaustive) for first in range(VERSIONS)[AT_A_SERVER::AT_A_SERVER])],
)
async def test_good_versions_are_not_refused(tmp_path: Path, first: int):
    made = {seed: trained(seed) for seed in range(first, first + AT_A_SERVER)}
    folders = {
        seed: model.write(tmp_path / str(seed), SUFFIXES[seed // len(KINDS) % len(SUFFIXES)])
        for seed, model in made.items()
    }
    settings = Settings()
    with a_stack(tmp_path, "") as stack:
        port = stack.start_model(*(f"m{seed}:1,file={folder / 'model.onnx'}" for seed, folder in folders.items()))
        refused = {}
        for seed, model in made.items():
            version = a_version(
                "1",
                f"m{seed}",
                endpoints=[f"127.0.0.1:{port}"],
                protocol=model.protocol,
                input_schema=model.input_schema,
                output_schema=model.output_schema,
                backend=model.backend,
                timeout_ms=model.timeout_ms,
            )
            rows = await read_case_rows(folders[seed])
            results = await validate_version(settings, version, rows, STEPS)

            assert [one.step for one in results][:1] == ["cases"]
            words = [one.words for one in results if not one.passed]
            if words or len(results) < len(("cases", "robustness", "batches", "load")):
                refused[f"{model.kind} {seed}"] = words

    assert refused == {}


async def test_the_example_models_are_not_refused(model_port):
    settings = Settings()
    for example in example_versions():
        version = a_version(
            str(example.version),
            example.model_name,
            endpoints=[f"127.0.0.1:{model_port(f'{example.model_name}:{example.version}')}"],
            input_schema=example.input_schema,
            output_schema=example.output_schema,
            timeout_ms=4_000,
        )

        results = await validate_version(settings, version, CaseRows(example_cases(example)), STEPS)

        assert [one.words for one in results if not one.passed] == []
        assert [one.step for one in results] == ["cases", "robustness", "batches", "load"]
