"""One strategy per class of hostile input: what is sent, and what an answer to it may be."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rigs.fuzz.models import MIXED, OFFERS, PAWN, VISITS, Attacked
from rigs.fuzz.values import (
    HOSTILE_TEXTS,
    MARK,
    Inputs,
    bad_entity_ids,
    bad_values,
    dumps,
    entity_ids,
    inputs_for,
    mutated,
)

KEY_ID, SECRET = "fuzz", "fuzz-secret"
AUTHORIZATION = f"authorization: Bearer {KEY_ID}.{SECRET}\r\n".encode()
GOOD = frozenset({200})
REFUSED = frozenset({400, 422})
NAMED_FAILURES = frozenset({502, 503, 504})
"""The only answers from 500 on that the proxy may give, each with the code of a problem."""
EITHER = GOOD | REFUSED
_OF_OTHERS = (":predict", ":classify", ":regress", "/invocations")
CONTROL = frozenset({200, 201, 202, 400, 404, 405, 408, 409, 412, 413, 422, 428}) | NAMED_FAILURES


class Case(NamedTuple):
    """A request with its body in one piece, over a connection that others use after it."""

    target: str
    body: bytes
    expected: frozenset[int]
    method: str = "POST"
    headers: bytes = b""
    members: tuple[bool, ...] | None = None
    """Of a batch: which of its members must have a prediction."""

    @property
    def is_dialect(self) -> bool:
        """Whether the path is another server's, whose clients read errors in their own form."""
        return self.target.startswith("/v2") or self.target.endswith(_OF_OTHERS)

    @property
    def wire(self) -> bytes:
        """The bytes that are sent."""
        fields = f"host: localhost\r\ncontent-length: {len(self.body)}\r\n"
        head = f"{self.method} {self.target} HTTP/1.1\r\n{fields}".encode()
        return head + self.headers + b"\r\n" + self.body


def predict_cases(model: Attacked) -> SearchStrategy[Case]:
    """Draw predict calls from a model's schema."""
    return st.tuples(_members(model), _headers).map(
        lambda drawn: Case(
            f"/v1/models/{model.name}/predict",
            dumps(drawn[0].document),
            GOOD if drawn[0].is_good else EITHER,
            headers=drawn[1],
        )
    )


def broken_json_cases() -> SearchStrategy[Case]:
    """Draw texts that are JSON almost, or not at all, to every path that reads a body."""
    targets = st.sampled_from(
        [
            f"/v1/models/{VISITS}/predict",
            f"/v1/models/{VISITS}/predict:batch",
            f"/v1/models/{OFFERS}/rank",
            f"/v1/models/{VISITS}/versions/1/predict",
            "/v1/outcomes",
            f"/v1/models/{PAWN}/rollouts?dry_run=true",
        ]
    )
    text = dumps({"entity_id": "e-1", "inputs": {"note": MARK, "age": [1, 2, {"a": None}]}, "category": "vip"})
    bodies = mutated(text) | st.sampled_from(HOSTILE_TEXTS) | st.binary(max_size=200)
    return st.tuples(targets, bodies).map(lambda drawn: Case(drawn[0], drawn[1], EITHER, headers=AUTHORIZATION))


def batch_cases(model: Attacked) -> SearchStrategy[Case]:
    """Draw batches in which good members stand beside bad ones."""

    def case_of(members: list[_Member]) -> Case:
        body = dumps({"entities": [member.document for member in members]})
        good = tuple(member.is_good for member in members)
        # A NUL in anybody's name of a field spoils the text that all share.
        expected = EITHER if b"\\u0000" in body else GOOD
        return Case(f"/v1/models/{model.name}/predict:batch", body, expected, members=good)

    return st.lists(
        _members(model) | bad_values.map(lambda value: _Member(value, is_good=False)), min_size=1, max_size=8
    ).map(case_of)


def rank_cases(model: Attacked) -> SearchStrategy[Case]:
    """Draw rank calls, in rows and in columns."""
    treatment = inputs_for(model.input_schema, per="treatment")
    rows = st.lists(st.tuples(st.text(max_size=4), treatment), max_size=6).map(_rows)
    columns = st.dictionaries(st.sampled_from(["price", "kind", "x"]), st.lists(bad_values, max_size=5), max_size=3)
    ids = st.lists(st.text(max_size=4) | bad_values, max_size=5)
    in_columns = st.fixed_dictionaries({"ids": ids, "inputs": columns})
    return st.builds(
        lambda entity_id, inputs, treatments, top_k: Case(
            f"/v1/models/{model.name}/rank",
            dumps({"entity_id": entity_id, "inputs": inputs.values, "treatments": treatments, **top_k}),
            EITHER | {409},  # a version that ranks nothing
        ),
        entity_ids | bad_entity_ids,
        inputs_for(model.input_schema, per="entity"),
        rows | in_columns | bad_values,
        st.just({}) | (st.integers(-1, 7) | bad_values).map(lambda value: {"top_k": value}),
    )


def outcome_cases() -> SearchStrategy[Case]:
    """Draw outcomes, and what is almost some."""
    event = st.fixed_dictionaries(
        {
            "event_id": st.uuids().map(str) | bad_entity_ids,
            "model": st.just(PAWN) | bad_values,
            "entity_id": entity_ids | bad_entity_ids,
            "name": st.sampled_from(["bought", "", "n" * 101]) | bad_values,
            "value": st.floats(-1e20, 1e20) | bad_values,
            "occurred_at": st.datetimes().map(lambda moment: f"{moment.isoformat()}Z") | bad_values,
        },
        optional={"prediction_id": st.just(str(UUID(int=1))) | bad_values, "x": bad_values},
    )
    documents = st.lists(event | bad_values, max_size=4).map(lambda events: {"events": events}) | bad_values
    return documents.map(lambda document: Case("/v1/outcomes", dumps(document), REFUSED | {202}, headers=AUTHORIZATION))


def control_cases() -> SearchStrategy[Case]:
    """Draw calls of the control plane: every route, with bodies and queries that mean nothing or almost something."""
    names = st.sampled_from([PAWN, "nobody", "a%2Fb", "%00", "%ff", "..", "x" * 300, "%25"])
    numbers = st.sampled_from(["0", "1", "-1", "999999999999999999999", "x", "1.5", "%31"])
    orders = st.sampled_from(["", ":pause", ":resume", ":promote", ":approve", ":abort", ":explode"])
    writes = st.one_of(
        names.map("/v1/models/{}/rollouts".format),
        names.map("/v1/models/{}/rollouts?dry_run=true".format),
        names.map("/v1/models/{}:rollback".format),
        st.tuples(names, numbers, orders).map(lambda drawn: "/v1/models/{}/rollouts/{}{}".format(*drawn)),
    )
    reads = st.one_of(
        names.map("/v1/models/{}".format),
        names.map("/v1/models/{}/policy".format),
        st.tuples(names, _queries).map(lambda drawn: "/v1/models/{}/assignment?{}".format(*drawn)),
        st.tuples(names, st.sampled_from(["ab", "shadow", "drift"]), _queries).map(
            lambda drawn: "/v1/models/{}/reports/{}?{}".format(*drawn)
        ),
        _queries.map("/v1/models?{}".format),
        _queries.map("/v1/audit?{}".format),
        st.tuples(names, _queries).map(lambda drawn: "/v1/models/{}/rollouts?{}".format(*drawn)),
        st.sampled_from(["/problems/E101", "/problems/%00", "/nowhere", "/livez", "/openapi.json", "/docs"]),
    )
    bodies = (
        st.dictionaries(
            st.sampled_from(["version", "plan", "salt", "reason", "champion", "challenger_weight", "shadow", "x"]),
            bad_values | st.sampled_from(["1", "canary", "2,10,100", "9" * 99]),
            max_size=4,
        ).map(dumps)
        | bad_values.map(dumps)
        | st.just(b"")
    )
    matches = st.sampled_from(
        [b"", b'if-match: "1"\r\n', b'if-match: "999"\r\n', b"if-match: W/\r\n", b"if-match: *\r\n"]
    )
    write = st.builds(lambda target, body: Case(target, body, CONTROL, headers=AUTHORIZATION), writes, bodies)
    change = st.builds(
        lambda name, body, match: Case(
            f"/v1/models/{name}/policy?dry_run=true", body, CONTROL, "PATCH", AUTHORIZATION + match
        ),
        names,
        bodies,
        matches,
    )
    read = reads.map(lambda target: Case(target, b"", CONTROL, "GET", AUTHORIZATION))
    return st.one_of(write, change, read, read)


def header_cases() -> SearchStrategy[Case]:
    """Draw predict calls that are good but for their header fields."""
    body = dumps({"entity_id": "e-1", "inputs": {"age": 1, "plan": "pro", "rank": 1, "big": 1, "ratio": 0, "level": 1}})
    visible = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)
    any_value = visible.map(str.encode) | st.binary(max_size=40).map(_fold)
    named = st.sampled_from(
        [
            b"x-request-timeout-ms",
            b"x-envoy-expected-rq-timeout-ms",
            b"grpc-timeout",
            b"x-request-id",
            b"traceparent",
            b"authorization",
            b"content-encoding",
            b"content-type",
            b"accept",
            b"cookie",
            b"x-forwarded-for",
            b"expect",
        ]
    )
    usual = st.sampled_from(
        [
            b"-1",
            b"0",
            b"1",
            b"60000",
            b"1e3",
            b"00000000000001",
            b"9" * 400,
            b"1m",
            b"99999999H",
            b"gzip",
            b"identity",
            b"br",
            b"Bearer ",
            b"Bearer a.b",
            b"Bearer " + b"k" * 3_000,
            b"Basic YTpi",
            b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00",
        ]
    )
    fields = st.lists(st.tuples(named, usual | any_value), min_size=1, max_size=4)
    expected = EITHER | {401, 403, 417} | NAMED_FAILURES
    return fields.map(
        lambda drawn: Case(
            f"/v1/models/{MIXED}/predict",
            body,
            expected,
            headers=b"".join(b"%b: %b\r\n" % field for field in drawn if field[0] != b"expect" or field[1] == b"0"),
        )
    )


class _Member(NamedTuple):
    document: Any
    is_good: bool


def _members(model: Attacked) -> SearchStrategy[_Member]:
    def good_of(entity_id: str, inputs: Inputs, category: Mapping[str, Any]) -> _Member:
        return _Member({"entity_id": entity_id, "inputs": inputs.values, **category}, inputs.is_good)

    def bad_of(entity_id: Any, inputs: Inputs, more: Mapping[str, Any]) -> _Member:
        return _Member({"entity_id": entity_id, "inputs": inputs.values, **more}, is_good=False)

    inputs = inputs_for(model.input_schema)
    categories = st.just({}) | st.sampled_from([{"category": "vip"}, {"category": None}])
    odd = st.dictionaries(st.sampled_from(["x", "categories", "", "/~"]), bad_values, min_size=1, max_size=2)
    return st.one_of(
        st.builds(good_of, entity_ids, inputs, categories),
        st.builds(bad_of, bad_entity_ids, inputs, categories),
        st.builds(bad_of, entity_ids, inputs, odd),
    )


def _rows(drawn: list[tuple[str, Inputs]]) -> list[dict[str, Any]]:
    return [{"id": name, "inputs": inputs.values} for name, inputs in drawn]


def _fold(value: bytes) -> bytes:
    """Return bytes that end no header field; those that do are the wire's own class."""
    return value.replace(b"\r", b"").replace(b"\n", b"").replace(b"\x00", b"")


_headers = st.sampled_from([b"", b"x-request-timeout-ms: 20000\r\n", b"x-request-id: r-1\r\n", b"accept: */*\r\n"])
_queries = st.sampled_from(
    [
        "",
        "limit=0",
        "limit=-1",
        "limit=9999999999999999999",
        "limit=x",
        "cursor=%00",
        "cursor=%ff",
        "entity_id=a",
        "entity_id=",
        "entity_id=" + "x" * 300,
        "category=%00",
        "metric=bought",
        "metric=",
        "since=1d",
        "since=%00",
        "since=9999999999d",
        "within=-1d",
        "policy=boss",
        "version=%00",
        "threshold=nan",
        "threshold=1e999",
        "a=b&a=c",
        "model=%00",
        "model=" + "x" * 300,
        "metric=bought&since=0001-01-01",
        "metric=bought&within=1e9d",
        "per_call=x",
    ]
)
