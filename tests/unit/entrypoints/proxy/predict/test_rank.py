from typing import Any

import orjson
import pytest

from understudy.errors import BadAnswer

PATH = "/v1/models/offers/rank"
KEY = {"authorization": "Bearer ops.secret"}
ROWS: dict[str, Any] = {
    "entity_id": "customer-42",
    "inputs": {"age": 40},
    "treatments": [{"id": "mail", "inputs": {"price": 10}}, {"id": "push", "inputs": {"price": 30}}],
}
COLUMNS: dict[str, Any] = {**ROWS, "treatments": {"ids": ["mail", "push"], "inputs": {"price": [10, 30]}}}


@pytest.mark.parametrize("body", [ROWS, COLUMNS])
async def test_a_ranking_and_its_receipt(start, body):
    proxy = await start(offers=True)

    response = await proxy.client.post(PATH, json=body)

    assert response.status_code == 200
    answer = response.json()
    assert answer["prediction"] == {"treatments": 2, "scores": [25.0, 35.0]}
    assert (answer["model"], answer["version"], answer["role"], answer["generation"]) == ("offers", "9", "champion", 1)
    assert response.headers["x-prediction-id"] == answer["prediction_id"]
    assert response.headers["cache-status"] == "understudy; fwd=bypass"
    assert response.headers["x-request-id"]


async def test_the_best_of_them_and_one_row_for_all(start):
    proxy = await start(offers=True)

    response = await proxy.client.post(PATH, json={**ROWS, "top_k": 1})

    assert response.json()["prediction"] == {"treatments": 2, "best": [{"id": "push", "score": 35.0}]}
    (row,) = proxy.spool.rows
    assert (row.prediction_id, row.score) == (response.json()["prediction_id"], 35.0)


async def test_a_forced_version_ranks_for_who_may_ask(start):
    proxy = await start(offers=True, auth=True)
    path = "/v1/models/offers/versions/9/rank"

    good = await proxy.client.post(path, json=ROWS, headers=KEY)
    refused = await proxy.client.post(path, json=ROWS, headers={"authorization": "Bearer visitor.secret"})

    assert good.json()["prediction"]["scores"] == [25.0, 35.0]
    assert (refused.status_code, refused.json()["code"]) == (403, "E403")


async def test_every_problem_of_every_treatment_is_named_at_once(start):
    proxy = await start(offers=True)
    treatments = [
        {"id": "a", "inputs": {"price": -1}},
        {"id": "b", "inputs": {}},
        {"id": "c", "inputs": {"price": "x"}},
    ]

    response = await proxy.client.post(PATH, json={**ROWS, "inputs": {}, "treatments": treatments})

    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, "E101")
    assert {error["pointer"] for error in problem["errors"]} == {
        "/inputs/age",
        "/treatments/0/inputs/price",
        "/treatments/1/inputs/price",
        "/treatments/2/inputs/price",
    }
    assert proxy.spool.rows == []


async def test_a_model_without_treatments_says_what_to_register(start):
    proxy = await start(offers=True)

    response = await proxy.client.post("/v1/models/visits/rank", json=ROWS)

    problem = response.json()
    assert (response.status_code, problem["code"]) == (409, "E109")
    assert "version 1" in problem["detail"]
    assert '"per": "treatment"' in problem["next"]


async def test_a_predict_call_of_the_same_model_has_one_treatment(start):
    proxy = await start(offers=True)

    response = await proxy.client.post(
        "/v1/models/offers/predict", json={"entity_id": "e", "inputs": {"age": 40, "price": 10}}
    )

    assert response.json()["prediction"] == {"score": 25.0}


async def test_the_limit_of_a_ranks_body_is_its_own(start):
    proxy = await start(offers=True, body_limit_bytes=1_024, rank_body_limit_bytes=100_000)
    ids = [f"treatment-{n}" for n in range(2_000)]
    body = {**ROWS, "treatments": {"ids": ids, "inputs": {"price": list(range(2_000))}}, "top_k": 1}

    good = await proxy.ask(PATH, orjson.dumps(body))
    refused = await proxy.ask(PATH, b" " * 60_000, b" " * 60_000)

    assert orjson.loads(good.body)["prediction"]["best"] == [{"id": "treatment-1999", "score": 1019.5}]
    assert (refused.status, orjson.loads(refused.body)["code"]) == (413, "E103")


@pytest.mark.deep
async def test_what_fails_behind_it_is_told_as_for_predict(start):
    proxy = await start(offers=True)
    proxy.backends["9"].error = BadAnswer("the model server refused the call")

    response = await proxy.client.post(PATH, json=ROWS)

    assert (response.status_code, response.json()["code"]) == (502, "E502")
    assert proxy.spool.rows[0].error_code == "E502"


async def test_a_model_says_which_inputs_belong_to_the_treatments(start):
    proxy = await start(offers=True)

    response = await proxy.client.get("/v1/models/offers")

    (version,) = response.json()["versions"]
    assert {one["name"]: one.get("per") for one in version["inputs"]} == {"age": None, "price": "treatment"}
