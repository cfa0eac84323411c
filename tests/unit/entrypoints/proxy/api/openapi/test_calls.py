"""The API's description and what it does: every status that it names is reached, and no other is.

The control plane's part is beside the database that it needs: ``integration/entrypoints/test_control.py``.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from understudy.errors import BackendUnavailable, BadAnswer

ONE = b'{"entity_id":"a","inputs":{"age":1,"income":2}}'
MANY = b'{"entities":[' + ONE + b"]}"
RANKED = b'{"entity_id":"a","inputs":{"age":1},"treatments":{"ids":["t"],"inputs":{"price":[2]}}}'
OPS, VISITOR = (b"authorization", b"Bearer ops.secret"), (b"authorization", b"Bearer visitor.secret")
BAD_DEADLINE, NO_TIME = (b"x-request-timeout-ms", b"soon"), (b"grpc-timeout", b"1n")
POSTS = {
    "predict": ("/v1/models/{}/predict", ONE),
    "predictBatch": ("/v1/models/{}/predict:batch", MANY),
    "rank": ("/v1/models/{}/rank", RANKED),
    "rankForced": ("/v1/models/{}/versions/9/rank", RANKED),
    "predictForced": ("/v1/models/{}/versions/1/predict", ONE),
}
MODELS = {"rank": "offers", "rankForced": "offers"}
EVENT = b'{"event_id":"e1","model":"visits","entity_id":"a","name":"n","value":1,"occurred_at":"2026-11-20T13:02:11Z"}'
READS = {
    "listModels": "/v1/models",
    "getModel": "/v1/models/visits",
    "getAssignment": "/v1/models/visits/assignment?entity_id=a",
    "getProblem": "/problems/E101",
}


async def described(proxy: Any) -> dict[str, dict[str, Any]]:
    document = orjson.loads((await proxy.ask("/openapi.json", method="GET", headers=[OPS])).body)
    shared = document["components"]["responses"]
    calls = [call for path in document["paths"].values() for call in path.values()]
    return {
        call["operationId"]: {
            status: shared[found["$ref"].rpartition("/")[2]] if "$ref" in found else found
            for status, found in call["responses"].items()
        }
        for call in calls
        if {*call["tags"]} <= {"predict", "outcomes", "registry", "health"}
    }


LIMITS = {"body_limit_bytes": 1_024, "rank_body_limit_bytes": 1_024}


@pytest.fixture
async def up(start):
    return await start(auth=True, docs=True, offers=True, **LIMITS)


@pytest.fixture
async def reached(up, start, tmp_path: Path):
    """Return the statuses, and their content types, that each operation answered to everything that can be wrong."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    impatient = await start(auth=True, receive_seconds=0.05, offers=True, **LIMITS)  # of a good body it may be, too

    async def ask(operation: str, path: str, *chunks: bytes, proxy: Any = up, **asked: Any) -> None:
        answer = await proxy.ask(path, *chunks, **asked)
        found[operation][str(answer.status)] = answer.headers[b"content-type"].decode()

    for operation, (pattern, good) in POSTS.items():
        path = pattern.format(MODELS.get(operation, "visits"))
        other = "a%2Fb" if not operation.endswith("Forced") else "visits"
        await ask(operation, path, good, headers=[OPS])
        await ask(operation, path, good, headers=[OPS, BAD_DEADLINE])
        await ask(operation, path, good)
        await ask(operation, pattern.format(other), good, headers=[VISITOR])
        await ask(operation, pattern.format("nobody"), good, headers=[OPS])
        await ask(operation, path, proxy=impatient, headers=[OPS], ends=False)
        await ask(operation, path, b" " * 1_025, headers=[OPS])
        await ask(operation, path, b"{}", headers=[OPS])
        await ask(operation, path, good, headers=[OPS, NO_TIME])
    for chunk, headers in (
        (b'{"events":[%s]}' % EVENT, [OPS]),
        (b'{"events":[{}]}', [OPS]),
        (b"{", [OPS]),
        (b"{}", []),
        (b"{}", [VISITOR]),
        (b" " * 1_025, [OPS]),
    ):
        await ask("addOutcomes", "/v1/outcomes", chunk, headers=headers)
    await ask("addOutcomes", "/v1/outcomes", proxy=impatient, headers=[OPS], ends=False)
    up.outcomes.available = False
    await ask("addOutcomes", "/v1/outcomes", b'{"events":[%s]}' % EVENT, headers=[OPS])
    for operation, path in READS.items():
        await ask(operation, path, method="GET", headers=[OPS])
        await ask(operation, path, method="GET", headers=[OPS, BAD_DEADLINE])
        await ask(operation, path, method="GET")
        await ask(operation, path, method="GET", headers=[VISITOR])
    await ask("getModel", "/v1/models/nobody", method="GET", headers=[OPS])
    await ask("getAssignment", "/v1/models/nobody/assignment?entity_id=a", method="GET", headers=[OPS])
    await ask("getAssignment", "/v1/models/visits/assignment", method="GET", headers=[OPS])
    await ask("getProblem", "/problems/E999", method="GET", headers=[OPS])
    await ask("rank", "/v1/models/visits/rank", RANKED, headers=[OPS])
    await ask("rankForced", "/v1/models/visits/versions/1/rank", RANKED, headers=[OPS])
    for operation in ("livez", "readyz"):
        await ask(operation, f"/{operation}", method="GET")
    for error in (BadAnswer("INTERNAL"), BackendUnavailable("no replica answers")):
        up.backends["1"].error = up.backends["9"].error = error
        for operation in ("predict", "predictForced", "rank", "rankForced"):
            pattern, good = POSTS[operation]
            body = good.replace(b"2", error.code[1:].encode())
            await ask(operation, pattern.format(MODELS.get(operation, "visits")), body, headers=[OPS])

    (tmp_path / "starting").mkdir()  # the others' folder has their policies by now, if the machine is slow
    starting = await start(auth=True, registry_answers=False, folder=tmp_path / "starting")
    await ask("predictBatch", POSTS["predictBatch"][0].format("visits"), MANY, proxy=starting, headers=[OPS])
    for operation, path in {**READS, "readyz": "/readyz"}.items():
        await ask(operation, path, method="GET", proxy=starting, headers=[OPS])
    return dict(found)


async def test_every_status_that_the_description_names_is_reached_and_no_other_is(up, reached):
    named = {
        operation: {
            status: next(iter(response["content"])) for status, response in responses.items() if status != "default"
        }
        for operation, responses in (await described(up)).items()
    }

    assert reached == named
