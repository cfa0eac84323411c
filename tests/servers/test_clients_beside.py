"""The same clients ask a real server, and a proxy before it: what differs is what the page on dialects says.

``make test-servers`` runs it; ``UNDERSTUDY_WRITE_DIFFERENCES=1`` writes the page's table anew.
"""

import asyncio
import json
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from e2e.stack import a_stack, sql
from servers.test_real_servers import DOORS, VENVS, Door, Running, servers

from understudy.adapters.embedded.loopback_ports import free_port

__all__ = ["servers"]
CLIENTS = Path(__file__).parents[2] / ".venv-clients" / "bin" / "python"
SCRIPT = Path(__file__).with_name("ask_server.py")
PAGE = Path("docs/reference/dialects.md")
BEGIN, END = "<!-- differences: make test-servers -->\n", "<!-- end of differences -->"
MAX_ROWS = 10
ASK_SECONDS = 180
WRITES = bool(os.environ.get("UNDERSTUDY_WRITE_DIFFERENCES"))


class Beside(NamedTuple):
    """A server with both of its protocols."""

    door: Door
    title: str
    version: str
    output: Mapping[str, Any]


SERVERS = {
    "mlserver": Beside(DOORS["mlserver"], "MLServer", "v1", {"tensor": "predict", "dtype": "int64", "shape": [1]}),
    "triton": Beside(DOORS["triton"], "Triton", "1", {"tensor": "p", "dtype": "float32", "shape": [1]}),
}


async def register(database_url: str, beside: Beside, target: str, width: int) -> None:
    """Make the server the champion of a model of its own name."""
    features = [{"name": f"f{place}", "dtype": "float32"} for place in range(width)]
    tensors = [{"name": beside.door.input_name, "features": [one["name"] for one in features]}]
    (row,) = await sql(
        database_url,
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, protocol, backend, input_schema,"
        " output_schema, timeout_ms) VALUES ('example', $1, 'none', 'none', 'oip', $2, $3, $4, 4000) RETURNING id",
        beside.version,
        orjson.dumps({"version": beside.version}).decode(),
        orjson.dumps({"features": features, "tensors": tensors, "batch": True}).decode(),
        orjson.dumps(dict(beside.output)).decode(),
    )
    await sql(database_url, "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", row["id"], target)
    await sql(
        database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('example', $1)", row["id"]
    )


def asked(http: str, grpc: str, beside: Beside, running: Running) -> dict[str, Any]:
    """Return what came of every call."""
    about = {
        "model": "example",
        "version": beside.version,
        "input": beside.door.input_name,
        "output": beside.output["tensor"],
        "rows": running.rows[:4],
    }
    found: dict[str, Any] = {}
    for client in ("http", "grpc", "kserve"):
        command = [str(CLIENTS), str(SCRIPT), http, grpc, client, json.dumps(about)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
        assert done.returncode == 0, done.stderr[-3_000:]
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


def shown(value: Any) -> str:
    """Return what came of a call as a table shows it."""
    if isinstance(value, str) and re.fullmatch(r"([0-9a-f]{8})+", value):
        return "answered"
    return str(value).removeprefix("refused: ")


def is_refused(value: Any) -> bool:
    """Whether a call had no answer."""
    return isinstance(value, str) and value.startswith("refused: ")


def rows_of(differences: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> list[str]:
    """Return the table's rows: of each server what only it answers, what only the proxy does, and what both say."""
    rows: list[str] = []
    for title, calls in differences.items():
        kinds: defaultdict[str, list[str]] = defaultdict(list)
        for call, (theirs, ours) in calls.items():
            if is_refused(theirs) and not is_refused(ours):
                kinds["refused there, answered here"].append(f"{call} ({shown(theirs)})")
            elif is_refused(ours) and not is_refused(theirs):
                kinds["answered there, refused here"].append(f"{call} ({shown(ours)})")
            else:
                what = "refused by both, in other words" if is_refused(ours) else "answered by both, otherwise"
                kinds[what].append(f"{call} ({shown(theirs)}; here {shown(ours)})")
        rows += [f"| {title} | {kind} | {', '.join(kinds[kind])} |\n" for kind in sorted(kinds)]
    return rows


@pytest.fixture(scope="module")
def differences() -> dict[str, dict[str, tuple[Any, Any]]]:
    """What the tests before the last one found."""
    return {}


@pytest.mark.parametrize("name", SERVERS)
def test_what_answers_differently_before_a_server_is_what_the_page_says(
    name: str, servers: dict[str, Running], database_url: str, tmp_path: Path, differences: dict[str, Any]
) -> None:
    beside = SERVERS[name]
    if not (VENVS / name / ".done").exists() or not CLIENTS.exists():
        pytest.skip("make test-servers installs servers and clients")
    running = servers[name]
    grpc, http = running.endpoints[:2]
    asyncio.run(register(database_url, beside, grpc, len(running.rows[0])))
    theirs = asked(http, grpc, beside, running)
    grpc_port = free_port()
    with a_stack(tmp_path, database_url) as stack:
        port = stack.start_proxy(grpc_port=grpc_port)
        ours = asked(f"127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", beside, running)

    found = {call: (theirs[call], ours[call]) for call in theirs if theirs[call] != ours[call]}
    differences[beside.title] = found
    values = {call for call, value in theirs.items() if shown(value) == "answered"}
    assert len(values) >= 10
    assert {call: found[call] for call in values & found.keys() if shown(found[call][1]) == "answered"} == {}
    told = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines(keepends=True)
    if not WRITES:
        assert [row for row in told if row.startswith(f"| {beside.title} |")] == rows_of({beside.title: found})


def test_the_table_is_short(differences: dict[str, dict[str, tuple[Any, Any]]]) -> None:
    rows = rows_of(differences)
    if WRITES and differences:
        text = PAGE.read_text()
        before, _, rest = text.partition(BEGIN)
        head = "\n| server | | calls |\n|---|---|---|\n"
        PAGE.write_text(before + BEGIN + head + "".join(rows) + "\n" + END + rest.partition(END)[2])

    assert len(rows) <= MAX_ROWS
