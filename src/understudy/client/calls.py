"""The calls of the client, as paths and bodies."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from understudy.client.bodies import json_body
from understudy.client.given import (
    Entity,
    Id,
    Outcome,
    Table,
    Treatment,
    entities_of,
    entity_of,
    outcomes_of,
    treatments_of,
)
from understudy.client.tables import Row, id_text, kind_words

MAX_MEMBERS, MAX_EVENTS = 256, 1_000
"""Of one call; the client makes as many calls as it takes."""


class Call(NamedTuple):
    """An HTTP request, but for its host, its key and its deadline."""

    method: str
    path: str
    body: bytes | None = None


def predict_call(model: str, entity: Entity | Row, version: str | int | None = None) -> Call:
    """Return the call that asks for one prediction; ``version``: of that version, whatever the policy says.

    Raises:
        TypeError, ValueError: The entity is none, or an input has no form in JSON; here and in the calls below.
    """
    return Call("POST", f"{_of_model(model, version)}/predict", json_body(_member(entity_of(entity))))


def batch_calls(model: str, entities: Iterable[Entity | Row] | Table) -> list[Call]:
    """Return the calls that ask for predictions of many entities, in their order.

    All bodies are made before the first call, since an error is to mean that nothing was sent.
    """
    path = f"{_of_model(model)}/predict:batch"
    members = [_member(entity) for entity in entities_of(entities)]
    return [Call("POST", path, _batch_body(members, first)) for first in range(0, len(members), MAX_MEMBERS)]


def rank_call(
    model: str,
    entity: Entity | Row,
    treatments: Iterable[Treatment | Row] | Table,
    top_k: int | None,
    version: str | int | None = None,
) -> Call:
    """Return the call that asks for the scores of treatments, or for the best of them."""
    body = {**_member(entity_of(entity)), "treatments": _columns(treatments_of(treatments))}
    if top_k is not None:
        body["top_k"] = top_k
    return Call("POST", f"{_of_model(model, version)}/rank", json_body(body))


def receipt_call(model: str, entity_id: Id, category: str | None) -> Call:
    """Return the call that asks which version answers an entity, and why."""
    query = {"entity_id": id_text(entity_id, "entity_id")} | ({} if category is None else {"category": category})
    return Call("GET", f"{_of_model(model)}/assignment?{urlencode(query)}")


def outcome_calls(events: Iterable[Outcome | Row] | Table) -> list[Call]:
    """Return the calls that store outcomes; all are made before the first call, as those of a batch.

    Raises:
        TypeError, ValueError: One cannot be stored, such as one whose time has no zone.
    """
    told = [{name: value for name, value in one._asdict().items() if value is not None} for one in outcomes_of(events)]
    parts = (told[first : first + MAX_EVENTS] for first in range(0, len(told), MAX_EVENTS))
    return [Call("POST", "/v1/outcomes", json_body({"events": part})) for part in parts]


def _of_model(model: object, version: str | int | None = None) -> str:
    of_version = "" if version is None else f"/versions/{quote(id_text(version, 'version'), safe='')}"
    if not isinstance(model, str) or not model:
        raise TypeError(f"model: expected the name of a model, got {kind_words(model)}")
    return f"/v1/models/{quote(model, safe='')}{of_version}"


def _batch_body(members: Sequence[Mapping[str, Any]], first: int) -> bytes:
    """Return the body of one call; an error names the place in the caller's whole list."""
    try:
        return json_body({"entities": members[first : first + MAX_MEMBERS]})
    except TypeError:
        return json_body({"entities": members})


def _member(entity: Entity) -> dict[str, Any]:
    category = {} if entity.category is None else {"category": entity.category}
    return {"entity_id": entity.entity_id, "inputs": entity.inputs, **category}


def _columns(treatments: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
    """Return treatments as columns, which cost the proxy a third; as rows where their inputs are not the same ones."""
    names = list(treatments[0][1]) if treatments else []
    if any(list(inputs) != names for _, inputs in treatments):
        return [{"id": treatment_id, "inputs": inputs} for treatment_id, inputs in treatments]
    columns = {name: [inputs[name] for _, inputs in treatments] for name in names}
    return {"ids": [treatment_id for treatment_id, _ in treatments], "inputs": columns}
