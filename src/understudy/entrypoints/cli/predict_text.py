"""What ``understudy predict`` says: the answer first, who gave it and how long that took under it."""

from collections.abc import Mapping
from shlex import quote
from typing import Any, NamedTuple

import orjson
from rich.console import RenderableType
from rich.text import Text

from understudy.entrypoints.cli.shared.rendering import facts


class Told(NamedTuple):
    """One call and its answer."""

    model: str
    entity: str
    inputs: Mapping[str, Any]
    answer: Mapping[str, Any]
    """The body of the answer."""
    headers: Mapping[str, str]
    """Of the answer; names in lower case."""
    seconds: float
    """As the caller saw it, connecting included."""
    trace_id: str | None
    assignment: Mapping[str, Any] | None
    """What ``GET …/assignment`` says of the entity; asked for with ``--trace`` only."""
    is_forced: bool = False
    """Whether the caller named the version."""


def stages_of(server_timing: str) -> dict[str, float]:
    """Return the milliseconds of each stage that the header ``server-timing`` measured, in its order.

    Source:
        W3C Server Timing: members divided by commas, each ``name;dur=milliseconds``; a member without ``dur``, and what
        is no number, is left out.
    """
    found = {}
    for member in server_timing.split(","):
        name, *parameters = (part.strip() for part in member.split(";"))
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key == "dur" and value.replace(".", "", 1).isdecimal():
                found[name] = float(value)
    return found


def told_document(told: Told) -> dict[str, Any]:
    """Return a call as JSON: the answer's body as it is, and what its headers say."""
    return {
        "entity_id": told.entity,
        "inputs": told.inputs,
        "answer": told.answer,
        "took_ms": round(told.seconds * 1_000, 2),
        "server_timing_ms": stages_of(told.headers.get("server-timing", "")),
        "cache_status": told.headers.get("cache-status"),
        "request_id": told.headers.get("x-request-id"),
        "trace_id": told.trace_id,
        "assignment": told.assignment,
    }


def answer_texts(told: Told) -> list[RenderableType]:
    """Return a call for people."""
    answer = told.answer
    head = Text(_prediction_words(answer["prediction"]), "bold")
    head.append(f"   {told.model} {answer['version']}, {'forced' if told.is_forced else answer['role']}", "cyan")
    return [head, facts([*_facts_of(told), *(_trace_of(told) if told.assignment else [])]), _next_step(told)]


def _prediction_words(prediction: Mapping[str, Any]) -> str:
    texts = {
        name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in prediction.items()
    }
    return "  ".join(f"{name} {text}" for name, text in texts.items())


def _facts_of(told: Told) -> list[tuple[str, str]]:
    answer, found = told.answer, []
    fallback = answer.get("fallback")
    if fallback is not None:
        found.append(
            ("fallback", f"version {fallback['from_version']} failed ({fallback['code']}); the champion answered")
        )
    if answer.get("defaulted"):
        found.append(("defaulted", ", ".join(answer["defaulted"])))
    stages = ", ".join(
        f"{name} {milliseconds:.2f}" for name, milliseconds in stages_of(told.headers.get("server-timing", "")).items()
    )
    return [
        *found,
        ("server", f"{stages} ms" if stages else "did not say how long it took"),
        ("cache", told.headers.get("cache-status", "not asked")),
        ("prediction", str(answer["prediction_id"])),
        ("generation", str(answer["generation"])),
    ]


def _trace_of(told: Told) -> list[tuple[str, str]]:
    assignment = told.assignment or {}
    joins = assignment.get("joins_challenger_from_weight")
    return [
        (
            "bucket",
            f"{assignment.get('bucket')} = {assignment.get('hashed')}, weight {assignment.get('challenger_weight')}",
        ),
        ("why", "forced: --force-version named it" if told.is_forced else _reason_words(assignment)),
        *([] if joins is None else [("joins", f"the challenger from weight {joins} on")]),
        ("took", f"{told.seconds * 1_000:.1f} ms with the connection, as this command saw it"),
        ("request", str(told.headers.get("x-request-id"))),
        ("trace", str(told.trace_id)),
        ("inputs", orjson.dumps(told.inputs).decode()),
    ]


def _reason_words(assignment: Mapping[str, Any]) -> str:
    return f"{assignment.get('reason')}: {assignment.get('role')} {assignment.get('version')}"


def _next_step(told: Told) -> Text:
    return Text(
        f"→ understudy explain {quote(told.model)} {quote(told.entity)} says who answers this entity, and why", "cyan"
    )
