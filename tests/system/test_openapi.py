"""The running proxy beside its own description: schemathesis draws requests from it and holds the answers to it."""

from collections import Counter

import pytest
import schemathesis
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)

from rigs.fuzz.cases import KEY_ID, SECRET
from rigs.fuzz.drawing import draw
from rigs.fuzz.models import PAWN
from rigs.fuzz.world import a_world

EXAMPLES = 12
"""Requests of each operation; all of them take some 15 s."""
NAMED_FAILURES = (502, 503, 504)
CONFORMANCE = [content_type_conformance, response_schema_conformance, response_headers_conformance]


@pytest.fixture
def world(short_path, database_url, valkey_url):
    with a_world(short_path, database_url, valkey_url, workers=1) as found:
        yield found


@pytest.mark.long
def test_every_answer_is_one_that_the_description_has(world):
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{world.port}/openapi.json")
    headers = {"authorization": f"Bearer {KEY_ID}.{SECRET}"}
    statuses: Counter[str] = Counter()
    problems: list[str] = []
    all_operations = list(schema.get_all_operations())
    operations = [found.ok() for found in all_operations if isinstance(found, Ok)]

    for operation in operations:
        for number, case in enumerate(draw(operation.as_strategy(), EXAMPLES, seed=1)):
            if "model" in case.path_parameters and number % 2:
                case.path_parameters["model"] = PAWN
            if "version" in case.path_parameters and number % 4 == 1:
                case.path_parameters["version"] = "1"
            response = case.call(headers=headers, timeout=60)
            status = response.status_code
            statuses[f"{operation.label} {status}"] += 1
            if not is_described(operation, status) and not is_of_http(status, response.content):
                problems.append(f"{operation.label}: {status} is not described: {case.as_curl_command()[:300]}")
            if status >= 500 and status not in NAMED_FAILURES:
                problems.append(f"{operation.label}: {status}: {case.as_curl_command()[:300]}")
            if not is_of_http(status, response.content):
                try:
                    case.validate_response(response, checks=CONFORMANCE)
                except FailureGroup as failure:
                    problems.append(f"{operation.label}: {failure}")

    assert problems == [], "\n".join(problems)
    assert len(operations) == len(all_operations) > 20
    assert any(label.endswith(" 200") for label in statuses)


def is_described(operation, status: int) -> bool:
    """Whether an operation names a status; those of other protocols say what every refusal looks like."""
    raw = operation.definition.raw
    is_own = {*raw["tags"]} <= {"predict", "outcomes", "registry", "health", "control"}
    return str(status) in raw["responses"] or (not is_own and status >= 400)


def is_of_http(status: int, content: bytes) -> bool:
    """Whether the server refused what is no HTTP, before there was a path."""
    return status == 400 and content == b"Invalid HTTP request received."
