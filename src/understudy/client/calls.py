"""The calls of the client, as paths and bodies."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson

MAX_MEMBERS, MAX_EVENTS = 256, 1_000
"""Of one call; the client makes as many calls as it takes."""


class Entity(NamedTuple):
    """Whom a prediction of a batch is about."""

    entity_id: str
    inputs: Mapping[str, Any] = {}
    category: str | None = None


class Treatment(NamedTuple):
    """One of the things to be ranked for an entity."""

    id: str
    inputs: Mapping[str, Any] = {}


class Outcome(NamedTuple):
    """What happened to an entity, or after one prediction; one of the two is named, or both."""

    event_id: str
    """With the model's name the key by which an event counts once."""
    model: str
    name: str
    """A metric of reports and rollouts."""
    value: float
    occurred_at: datetime
    """With its zone."""
    entity_id: str | None = None
    prediction_id: str | None = None


class Call(NamedTuple):
    """An HTTP request, but for its host, its key and its deadline."""

    method: str
    path: str
    body: bytes | None = None


def predict_call(model: str, entity: Entity, version: str | None = None) -> Call:
    """Return the call that asks for one prediction; ``version``: of that version, whatever the policy says."""
    return Call("POST", f"{_of_model(model, version)}/predict", _json(_member(entity)))


def batch_calls(model: str, entities: Sequence[Entity]) -> Iterator[Call]:
    """Yield the calls that ask for predictions of many entities, in their order."""
    for first in range(0, len(entities), MAX_MEMBERS):
        members = [_member(entity) for entity in entities[first : first + MAX_MEMBERS]]
        yield Call("POST", f"{_of_model(model)}/predict:batch", _json({"entities": members}))


def rank_call(
    model: str, entity: Entity, treatments: Sequence[Treatment], top_k: int | None, version: str | None = None
) -> Call:
    """Return the call that asks for the scores of treatments, or for the best of them."""
    body = {**_member(entity), "treatments": _columns(treatments)}
    if top_k is not None:
        body["top_k"] = top_k
    return Call("POST", f"{_of_model(model, version)}/rank", _json(body))


def receipt_call(model: str, entity_id: str, category: str | None) -> Call:
    """Return the call that asks which version answers an entity, and why."""
    query = {"entity_id": entity_id} | ({} if category is None else {"category": category})
    return Call("GET", f"{_of_model(model)}/assignment?{urlencode(query)}")


def outcome_calls(events: Sequence[Outcome]) -> Iterator[Call]:
    """Yield the calls that store outcomes.

    Raises:
        ValueError: A time has no zone.
    """
    for first in range(0, len(events), MAX_EVENTS):
        yield Call(
            "POST", "/v1/outcomes", _json({"events": [_event(one) for one in events[first : first + MAX_EVENTS]]})
        )


def _of_model(model: str, version: str | None = None) -> str:
    of_version = "" if version is None else f"/versions/{quote(version, safe='')}"
    return f"/v1/models/{quote(model, safe='')}{of_version}"


def _member(entity: Entity) -> dict[str, Any]:
    category = {} if entity.category is None else {"category": entity.category}
    return {"entity_id": entity.entity_id, "inputs": entity.inputs, **category}


def _columns(treatments: Sequence[Treatment]) -> Any:
    """Return treatments as columns, which cost the proxy a third; as rows where their inputs are not the same ones."""
    names = list(treatments[0].inputs) if treatments else []
    if any(list(treatment.inputs) != names for treatment in treatments):
        return [{"id": treatment.id, "inputs": treatment.inputs} for treatment in treatments]
    columns = {name: [treatment.inputs[name] for treatment in treatments] for name in names}
    return {"ids": [treatment.id for treatment in treatments], "inputs": columns}


def _event(outcome: Outcome) -> dict[str, Any]:
    if outcome.occurred_at.tzinfo is None:
        raise ValueError(f"occurred_at of {outcome.event_id!r} has no zone; for example datetime.now(UTC)")
    return {name: value for name, value in outcome._asdict().items() if value is not None}


def _json(document: Any) -> bytes:
    # numpy's numbers and arrays too, where the caller has numpy.
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
