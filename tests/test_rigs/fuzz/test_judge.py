import orjson
import pytest

from rigs.fuzz.answers import Answer, NoAnswer, parse_answers
from rigs.fuzz.cases import GOOD, Case
from rigs.fuzz.judge import judge_answer, judge_case, judge_wire, prediction_ids
from rigs.fuzz.values import MARK
from rigs.fuzz.wire import Heard, WireCase

PROBLEM = {"content-type": b"application/problem+json"}
CASE = Case("/v1/models/m/predict", b"{}", GOOD)


def an_answer(status: int = 200, document: object = None, **headers: bytes) -> Answer:
    return Answer(status, headers, orjson.dumps(document if document is not None else {}))


def a_problem(status: int, code: str) -> Answer:
    return Answer(status, PROBLEM, orjson.dumps({"code": code, "status": status}))


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        (a_problem(500, "E500"), "status 500"),
        (a_problem(501, "E500"), "status 501"),
        (a_problem(422, "E999"), "a problem that the reference does not know: E999, 422"),
        (Answer(404, {}, b"Not Found"), "status 404 without a problem"),
    ],
)
def test_an_answer_that_may_not_be_is_found(answer, finding):
    assert judge_answer(answer) == [finding]


@pytest.mark.parametrize(
    "answer",
    [
        a_problem(503, "E503"),
        a_problem(422, "E101"),
        an_answer(),
        Answer(400, {"content-type": b"text/plain"}, b"Invalid HTTP request received."),
        Answer(431, {}, b"The head of the request is too long: at most 65536 bytes of target and headers."),
    ],
)
def test_an_answer_that_may_be_is_none(answer):
    assert judge_answer(answer) == []


def test_repeated_input_another_status_and_slowness_are_found():
    assert judge_case(CASE, an_answer(document={"x": MARK}), 0.1) == ["the answer repeats the caller's input"]
    assert judge_case(CASE, a_problem(422, "E101"), 0.1) == ["status 422, expected one of [200]"]
    assert judge_case(CASE, an_answer(), 9.0) == ["took 9.0 s"]


def test_a_good_member_of_a_batch_must_have_its_prediction():
    case = CASE._replace(members=(True, False))
    failed = {"error": {"code": "E101", "status": 422}}
    good = {"prediction_id": "p-1"}

    assert judge_case(case, an_answer(document={"failed": 1, "predictions": [good, failed]}), 0) == []
    assert judge_case(case, an_answer(document={"failed": 1, "predictions": [failed, good]}), 0) == [
        "a good member of a batch got E101"
    ]
    assert judge_case(case, an_answer(document={"failed": 0, "predictions": [good, failed]}), 0) == [
        "failed is not the number of failed members"
    ]
    assert judge_case(case, an_answer(document={"failed": 0, "predictions": []}), 0) == ["0 answers for 2 members"]


def test_predictions_that_must_be_logged_are_those_made_and_those_that_failed():
    members = [{"prediction_id": "a"}, {"prediction_id": "b", "error": {"status": 422}}, {"error": {"status": 422}}]
    members.append({"prediction_id": "c", "error": {"status": 502}})

    assert prediction_ids(an_answer(document={"predictions": members})) == ["a", "c"]
    assert prediction_ids(Answer(200, {"x-prediction-id": b"d"}, b"{}")) == ["d"]
    assert prediction_ids(Answer(422, {"x-prediction-id": b"e"}, b"{}")) == []
    rows = orjson.dumps({"predictions": [[0.5], 0.25, "yes"]})  # as KServe's and MLflow's clients get them
    assert prediction_ids(Answer(200, {"x-prediction-id": b"f"}, rows)) == ["f"]


def test_a_connection_must_end_and_have_no_more_answers_than_requests():
    case = WireCase("k", (b"x",), 1, "shuts")
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

    assert judge_wire(case, Heard(answer, is_over=True, seconds=0)) == []
    assert judge_wire(case, Heard(b"", is_over=False, seconds=0)) == ["the connection is neither answered nor closed"]
    assert judge_wire(case, Heard(answer * 2, is_over=True, seconds=0)) == ["2 answers to 1 requests"]
    assert judge_wire(case, Heard(answer[:-1], is_over=True, seconds=0)) == ["an answer of 2 bytes ends after 1"]


@pytest.mark.parametrize(
    "data",
    [
        b"oops",
        b"oops\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\n",
        b"HTTP/1.1 99 \r\n\r\n",
    ],
)
def test_bytes_that_are_no_answer_are_told(data):
    with pytest.raises(NoAnswer):
        parse_answers(data)


def test_interim_answers_are_left_out_and_a_body_without_length_ends_with_the_connection():
    data = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\nHTTP/1.1 400 Bad\r\n\r\nrest"
    )

    assert [(answer.status, answer.body) for answer in parse_answers(data)] == [(204, b""), (400, b"rest")]
