"""What each command loads: its start is most of its time, and what it loads must be installed.

The tests hold modules and not seconds; `docs/reference/installation.md` has what they come to.
"""

import json
import subprocess
import sys

import pytest

from understudy.entrypoints.cli.shared.startup.nouns import NOUNS

LIGHT = {"typer", "rich", "pydantic", "orjson"}
SERVES = {"fastapi", "google", "grpc", "gunicorn", "onnxruntime", "prometheus_client", "redis", "scipy", "uvicorn"}
"""What no installation has that has the extra ``cli`` alone."""
HEAVY = SERVES | {"alembic", "msgspec", "numpy", "pydantic_settings", "sqlalchemy", "structlog"}
OF_OTHER_EXTRAS = {"serve", "modelserver", "demo", "doctor"}

LOADED = """
import json, sys
from understudy.entrypoints.cli.shared.startup.noun_group import load
from understudy.entrypoints.cli.shared.startup.nouns import NOUNS
found = {}
for noun in sys.argv[1:]:
    load(noun)
    found[noun] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(found))
"""
LISTED = """
import asyncio, json, sys
from understudy.entrypoints.cli.main import run
from understudy.errors import RegistryUnavailable
code = run(sys.argv[1:] or ["model", "list"])
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def python(program: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120, check=True,
        env={"PATH": "/usr/bin:/bin", **environment},
    )  # fmt: skip
    return done.stdout.splitlines()[-1]


@pytest.mark.deep
def test_a_list_of_models_loads_neither_an_orm_nor_numpy_though_it_asks_postgres(tmp_path):
    said = python(LISTED, DATABASE_URL="postgresql://me@127.0.0.1:1/nothing", UNDERSTUDY_STATE_DIR=str(tmp_path))

    code, loaded = json.loads(said)
    assert code == 69
    assert set(loaded) >= {"asyncpg", *LIGHT}
    assert set(loaded) & {"httpx2", *HEAVY} == set()


@pytest.mark.deep
@pytest.mark.parametrize("words", ["version list", "rollout list", "explain visits", "ab list", "audit list"])
def test_a_command_that_asks_postgres_loads_no_client_of_http(words, tmp_path):
    environment = {"DATABASE_URL": "postgresql://me@127.0.0.1:1/nothing", "UNDERSTUDY_STATE_DIR": str(tmp_path)}

    code, loaded = json.loads(python(LISTED, *words.split(), **environment))

    assert code == 69
    assert "httpx2" not in loaded


@pytest.mark.deep
def test_with_a_key_a_list_of_models_loads_no_client_of_a_database(tmp_path):
    said = python(LISTED, UNDERSTUDY_PROXY_URL="http://127.0.0.1:1", UNDERSTUDY_STATE_DIR=str(tmp_path))

    code, loaded = json.loads(said)
    assert code == 69
    assert set(loaded) >= {"httpx2", *LIGHT}
    assert set(loaded) & {"asyncpg", *HEAVY} == set()


@pytest.mark.deep
def test_with_the_extra_cli_alone_every_noun_loads_but_those_that_serve():
    # Those first that load little: what is loaded stays.
    first = ("audit", "entity", "key", "predict")
    nouns = [*first, *(noun for noun in NOUNS if noun not in OF_OTHER_EXTRAS.union(first))]

    loaded = json.loads(python(LOADED, *nouns))

    assert {noun: set(tops) & SERVES for noun, tops in loaded.items() if set(tops) & SERVES} == {}
    assert {noun: set(loaded[noun]) & HEAVY for noun in first} == {noun: set() for noun in first}


def test_a_proxys_caller_loads_nothing_but_http_and_json():
    program = "import sys; import understudy.client; print(*sorted({name.partition('.')[0] for name in sys.modules}))"

    loaded = set(python(program).split())

    assert loaded >= {"httpx2", "orjson"}
    assert loaded & (HEAVY | {"asyncpg", "typer", "rich", "pydantic"}) == set()


@pytest.mark.deep
def test_a_proxy_and_a_monitor_without_a_lake_load_none_of_its_libraries():
    program = """
import sys
import understudy.bootstrap.monitor, understudy.bootstrap.prediction_log.log
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""

    loaded = set(python(program).split())

    assert loaded & {"duckdb", "obstore", "psycopg", "pyarrow", "pyiceberg", "sqlalchemy"} == set()
