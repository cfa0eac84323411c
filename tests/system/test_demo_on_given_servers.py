"""The demo on servers that it is given; what it shows and leaves behind by itself is in ``test_demo.py``."""

import asyncio
import json
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from e2e.demos import START_SECONDS, a_demo, start
from e2e.stack import sql

from understudy.adapters.dev_server.example_models import example_rows
from understudy.adapters.embedded.loopback_ports import free_port

pytestmark = pytest.mark.timeout(180)


def test_a_demo_uses_the_servers_that_it_is_given_makes_a_key_where_it_is_asked_for_and_once_prints_one_prediction(
    short_path: Path, database_url: str, valkey_url: str
):
    """Two starts for three claims: the second one prints one prediction and leaves nothing running."""
    port = free_port()  # claimed by this process: whoever starts a demo may keep its port for it
    environment = {"DATABASE_URL": database_url, "REDIS_URL": valkey_url, "UNDERSTUDY_AUTH": "true"}

    with a_demo(short_path, "--no-show", "--workers", "2", "--port", str(port), **environment) as (demo, where):
        row = example_rows("visits")[7]
        body = json.dumps({"entity_id": "customer-7", "inputs": row.inputs}).encode()
        url = f"{where['proxy']}/v1/models/visits/predict"
        with pytest.raises(HTTPError, match="401"):
            urlopen(Request(url, body), timeout=10)
        headers = {"authorization": f"Bearer {where['credential']}"}
        with urlopen(Request(url, body, headers), timeout=10) as answer:
            said = json.load(answer)
        with urlopen(f"{where['console']}/login", timeout=10) as page:
            assert b"Sign in" in page.read()
        mode = (short_path / "demo.json").stat().st_mode
        deadline = time.monotonic() + 60
        logged = "SELECT count(DISTINCT entity_id) FROM PredictionLog WHERE status = 'ok'"
        while asyncio.run(sql(database_url, logged))[0][0] < 20:  # its own traffic has the key, too
            assert time.monotonic() < deadline
            time.sleep(0.2)
    once = start(short_path, "--once", **environment)
    out, err = once.communicate(timeout=START_SECONDS)
    listed = "SELECT scopes, revoked_at IS NULL AS good FROM ApiKey ORDER BY array_length(scopes, 1), created_at"
    keys = asyncio.run(sql(database_url, listed))

    assert where["proxy"] == f"http://127.0.0.1:{port}"
    assert (said["model"], said["role"]) == ("visits", "champion")
    assert (where["database_url"], where["redis_url"]) == (database_url, valkey_url)
    assert {"postgres", "valkey"} & set(where["pids"]) == set()
    assert not (short_path / "postgres").exists()
    assert mode & 0o077 == 0
    assert demo.returncode == 0
    assert once.returncode == 0
    prediction = json.loads(out)
    assert 0 < prediction["prediction"]["score"] < 1
    assert (prediction["model"], prediction["version"], prediction["role"]) == ("visits", "1", "champion")
    assert [line.split()[0] for line in err.splitlines()].count("proxy") == 1
    assert not (short_path / "demo.json").exists()
    assert [row["good"] for row in keys] == [False, True] * 2  # the console's, and the callers'
    assert keys[0]["scopes"] == ["read", "operate"]
