"""The description for programs: one name for each thing, what each operation needs, and the file that has it all."""

import re
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tools.make_openapi import PAGE, document_text
from understudy.entrypoints.proxy.api.authorization import ACCESS, OPEN
from understudy.entrypoints.proxy.api.dialect_routes import ROUTES
from understudy.entrypoints.proxy.api.openapi.document import openapi_document

ANSWER = {"type": "object", "title": "Answer", "properties": {"score": {"type": "number"}}}
OTHER = {"type": "object", "title": "Answer", "properties": {}}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(PAGE.read_text())
    return found


def described(*schemas: dict[str, Any]) -> dict[str, Any]:
    """Return what FastAPI would say of operations that answer with these."""
    return {
        "paths": {
            f"/{number}": {
                "get": {
                    "operationId": f"ask{number}",
                    "responses": {"200": {"description": "", "content": {"application/json": {"schema": schema}}}},
                }
            }
            for number, schema in enumerate(schemas)
        }
    }


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for one in part.values():
            yield from references(one)
    elif isinstance(part, list):
        for one in part:
            yield from references(one)


@pytest.mark.deep
def test_the_file_is_what_a_proxy_answers():
    assert document_text() == PAGE.read_text(), "run make openapi"


def test_every_reference_leads_to_a_part_and_every_part_is_referred_to(document):
    parts = {
        f"#/components/{kind}/{name}"
        for kind, found in document["components"].items()
        if kind != "securitySchemes"
        for name in found
    }

    assert set(references(document)) == parts


def test_each_operation_has_a_name_of_its_own_and_says_what_it_needs(document):
    operations = {
        (method.upper(), path): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    names = [operation["operationId"] for operation in operations.values()]
    needed = {call: operation["security"] for call, operation in operations.items() if call in ACCESS}

    assert len(set(names)) == len(names)
    assert needed == {
        call: [] if scope is OPEN else [{"key": [scope.value]}] for call, scope in ACCESS.items() if call in needed
    }


def test_every_path_of_a_dialect_is_described_with_the_names_in_it(document):
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        in_path = {one["name"] for one in operation["parameters"] if one.get("in") == "path"}

        assert in_path == set(re.findall(r"\{(\w+)\}", route.path))
        if route.scope is not None:
            assert operation["security"] == [{"key": [route.scope.value]}]


def test_a_schema_with_a_title_is_one_part_wherever_it_is_used():
    document = openapi_document(described(ANSWER, ANSWER))

    answers = [document["paths"][path]["get"]["responses"]["200"]["content"] for path in ("/0", "/1")]
    assert answers == [{"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}] * 2
    assert document["components"]["schemas"]["Answer"] == ANSWER


def test_two_schemas_of_one_title_are_a_defect():
    with pytest.raises(ValueError, match="two different schemas have the name Answer"):
        openapi_document(described(ANSWER, OTHER))


async def test_a_call_has_the_headers_that_its_answer_is_described_with(start):
    proxy = await start(docs=True)
    body = b'{"entity_id":"a","inputs":{"age":1,"income":2}}'

    answer = await proxy.ask("/v1/models/visits/predict", body)

    responses = orjson.loads((await proxy.ask("/openapi.json", method="GET")).body)["paths"][
        "/v1/models/{model}/predict"
    ]["post"]["responses"]
    assert {name.encode() for name in responses["200"]["headers"]} == answer.headers.keys() - {
        b"content-type",
        b"content-length",
    }
