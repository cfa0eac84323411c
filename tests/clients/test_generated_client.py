"""A client that another program generates from ``docs/reference/openapi.json`` (``make test-clients``)."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from e2e.stack import a_stack, register, sql

from understudy.adapters.dev_server.example_models import example_rows, example_version

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv-clients" / "bin"
DOCUMENT = ROOT / "docs" / "reference" / "openapi.json"
SCRIPT = Path(__file__).with_name("ask_generated.py")
OFFERED = "log_incentive"
"""The feature that each treatment has a value of."""
INPUTS = example_rows("visits")[42].inputs
MAX_MODELS = 60
"""Files with a class of the document's: each thing has one, however many operations send or answer it."""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that has the generated package."""
    folder = tmp_path_factory.mktemp("generated")
    command: list[str | Path] = [BIN / "openapi-python-client", "generate", "--meta", "none", "--path", DOCUMENT]
    subprocess.run([*command, "--output-path", folder / "generated"], check=True, timeout=120, capture_output=True)
    return folder


async def prepare(database_url: str, port: int) -> None:
    schema = example_version("visits", 1).input_schema
    features = [{**one, "per": "treatment"} if one["name"] == OFFERED else one for one in schema["features"]]
    version = await register(
        database_url, 1, [port], input_schema=orjson.dumps({**schema, "features": features}).decode()
    )
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)


def test_a_client_has_every_operation_and_a_class_for_each_thing(generated: Path) -> None:
    modules = [path for path in (generated / "generated" / "api").glob("*/*.py") if path.stem != "__init__"]
    models = [path for path in (generated / "generated" / "models").glob("*.py") if path.stem != "__init__"]
    operations = [call for item in json.loads(DOCUMENT.read_text())["paths"].values() for call in item.values()]

    assert len(modules) == len(operations)
    assert len(models) <= MAX_MODELS


def test_a_generated_client_predicts_ranks_and_reads_what_is_wrong(
    generated: Path, database_url: str, tmp_path: Path, model_port: Callable[[str], int]
) -> None:
    asyncio.run(prepare(database_url, model_port("visits:1")))
    with a_stack(tmp_path, database_url) as stack:
        address = f"http://127.0.0.1:{stack.start_proxy()}"
        done = subprocess.run(
            [BIN / "python", SCRIPT, generated, address, json.dumps(INPUTS), OFFERED],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout)
    assert (found["version"], found["role"]) == ("1", "champion")
    assert found["scores"] == pytest.approx([found["score"], found["score"]])
    assert found["problem"][0] == "E101"
    assert "/inputs/x" in found["problem"][1]
