"""A rank call: one entity and many treatments in, the scores of all or the best of them out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from understudy.core.requests.predict import LONG_BYTES, envelope_violations, refuse
from understudy.core.requests.strict_json import parse
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.json_mapping import takes_one_row
from understudy.core.schema.outputs import scores_of, why_no_score
from understudy.core.schema.schema import OutputSchema, TreatmentLayout, input_hash_of, single_values
from understudy.core.schema.tensors import Block, Tensor
from understudy.core.schema.treatments import Columns, Rows, Treatments, assemble_treatments
from understudy.errors import MalformedBody, NotRankable, Violation

MAX_TREATMENTS = 2_000
MAX_TREATMENT_ID = 255
LARGE_ELEMENTS = 200_000
"""Of a call's tensors: a short body has many when each treatment repeats a long feature of the entity."""
LOGGED_TREATMENTS = 10
"""The best treatments that a log row names: a row of a thousand would take the space of a hundred others."""
_FIELDS = frozenset({"entity_id", "inputs", "category", "treatments", "top_k"})
_TREATMENT = frozenset({"id", "inputs"})
_COLUMNS = frozenset({"ids", "inputs"})


class Ranking(NamedTuple):
    """The answer of a rank call: JSON text of an object, the best score, and the JSON text for the log.

    The object is ``{"treatments": 3, "scores": [0.2, 0.9, 0.4]}`` in the order of the request; with ``top_k`` it is
    ``{"treatments": 3, "best": [{"id": "b", "score": 0.9}]}``, the best first. The log always has the latter form.
    """

    json: bytes
    score: float
    logged: bytes


class AssembledTreatments(NamedTuple):
    """One entity's validated treatments as the tensors of one call, and what reading the answer needs."""

    block: Block
    digest: str
    defaulted: tuple[str, ...]
    nested: bool
    ids: Sequence[str]
    top_k: int | None

    def ranking_of(self, schema: OutputSchema, tensor: Tensor) -> Ranking:
        """Return the ranking in a model server's answer.

        Raises:
            BadAnswer: If it is not one valid score for each treatment; one bad score refuses the ranking.
        """
        count = len(self.ids)
        if self.nested and tensor.shape[:2] == (1, count):
            tensor = Tensor(tensor.datatype, tensor.shape[1:], tensor.values)
        return ranking_of(scores_of(schema, tensor, count), self.ids, self.top_k)


class RankRequest(NamedTuple):
    """A caller's request: the entity, its inputs, the treatments, and how many of the best are wanted."""

    entity_id: str
    inputs: Mapping[str, Any]
    category: str | None
    treatments: Treatments
    top_k: int | None
    has_long_body: bool
    is_drawn: bool = False
    """As of a predict request."""

    def is_large(self, version: ModelVersion) -> bool:
        """Whether assembling takes so long that it belongs into a thread, beside the event loop."""
        row = sum(spec.size for spec in version.input_schema.tensors)
        return self.has_long_body or row * len(self.treatments.ids) > LARGE_ELEMENTS

    def assemble(self, version: ModelVersion, stored: Mapping[str, Any] | None) -> AssembledTreatments:
        """Return the version's tensors.

        Raises:
            NotRankable: If the version has no treatments, or no score for each.
            InputInvalid: With the violations of entity and treatments.
        """
        layout = _layout_of(version)
        schema = version.input_schema
        block, defaulted = assemble_treatments(schema, layout, self.inputs, stored, self.treatments)
        digest = input_hash_of(block.contents)
        return AssembledTreatments(block, digest, defaulted, layout.nested, self.treatments.ids, self.top_k)

    def logged_values(self, version: ModelVersion, stored: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the inputs that may be logged: only the entity's, since a thousand treatments' would fill the log."""
        layout = version.input_schema.treatments
        return single_values(layout.entity_features if layout is not None else (), self.inputs, stored)


def _layout_of(version: ModelVersion) -> TreatmentLayout:
    layout = version.input_schema.treatments
    why = why_no_score(version.output_schema)
    if takes_one_row(version.protocol, version.backend):
        why = "its server takes one row a call: TorchServe's own API, or a JSON mapping without [*] in backend.inputs"
    if layout is None:
        why = 'no feature of its input_schema has "per": "treatment"'
    if layout is None or why is not None:
        detail = f"version {version.version}: {why}"
        raise NotRankable(detail, (Violation("/treatments", detail),))
    return layout


def parse_rank(body: bytes, read: Callable[[bytes], Any] = parse) -> RankRequest:
    """Read the body of a rank call, its JSON by ``read``; treatments may come as a list of objects, or as columns.

    Raises:
        MalformedBody: If it is not JSON, or not an object.
        EntityIdInvalid: If the entity id is missing, empty, too long or no string.
        InputInvalid: If another field is unknown, missing or unusable.
    """
    document = read(body)
    if not isinstance(document, dict):
        raise MalformedBody("expected a JSON object: line 1, column 1 (byte 0)")
    violations = envelope_violations(document, _FIELDS, "a rank request")
    top_k = document.get("top_k")
    if top_k is not None and not (type(top_k) is int and 1 <= top_k <= MAX_TREATMENTS):
        violations.append(Violation("/top_k", f"expected a whole number from 1 to {MAX_TREATMENTS:,}"))
    treatments = _treatments_of(document.get("treatments"), violations)
    if violations or treatments is None:
        refuse(document, violations)
    return RankRequest(
        document["entity_id"], document["inputs"], document.get("category"), treatments, top_k, len(body) > LONG_BYTES
    )


def _treatments_of(listed: Any, violations: list[Violation]) -> Treatments | None:
    if isinstance(listed, list):
        return _rows_of(listed, violations)
    if isinstance(listed, dict):
        return _columns_of(listed, violations)
    missing = "missing; " if listed is None else ""
    violations.append(
        Violation("/treatments", f"{missing}expected a list of treatments, or an object with 'ids' and 'inputs'")
    )
    return None


def _rows_of(listed: list[Any], violations: list[Violation]) -> Rows | None:
    if not _counts(len(listed), "/treatments", violations):
        return None
    before = len(violations)
    for index, one in enumerate(listed):
        if type(one) is not dict or one.keys() != _TREATMENT or type(one["inputs"]) is not dict:
            violations.append(
                Violation(f"/treatments/{index}", "expected an object of 'id' and 'inputs', an object of features")
            )
    if len(violations) > before:
        return None
    ids = [one["id"] for one in listed]
    _check_ids(ids, "/treatments/{}/id", violations)
    return Rows(ids, [one["inputs"] for one in listed])


def _columns_of(listed: dict[str, Any], violations: list[Violation]) -> Columns | None:
    ids, values = listed.get("ids"), listed.get("inputs")
    if listed.keys() != _COLUMNS or type(ids) is not list or type(values) is not dict:
        violations.append(
            Violation("/treatments", "expected an object of 'ids', a list, and 'inputs', an object of lists")
        )
        return None
    if not _counts(len(ids), "/treatments/ids", violations):
        return None
    _check_ids(ids, "/treatments/ids/{}", violations)
    return Columns(ids, values)


def _counts(count: int, pointer: str, violations: list[Violation]) -> bool:
    if 1 <= count <= MAX_TREATMENTS:
        return True
    violations.append(Violation(pointer, f"expected 1 to {MAX_TREATMENTS:,} treatments, got {count:,}"))
    return False


def _check_ids(ids: list[Any], pointer: str, violations: list[Violation]) -> None:
    """Check that ids are strings without repeats: an answer names a treatment by its id."""
    strings = set(map(type, ids)) == {str}
    if strings and "" not in ids and max(map(len, ids)) <= MAX_TREATMENT_ID and len(set(ids)) == len(ids):
        return
    seen: set[str] = set()
    for index, one in enumerate(ids):
        if type(one) is not str or not 0 < len(one) <= MAX_TREATMENT_ID:
            problem = f"expected a string of 1 to {MAX_TREATMENT_ID} characters"
            violations.append(Violation(pointer.format(index), problem))
        elif one in seen:
            violations.append(Violation(pointer.format(index), "repeats the id of another treatment"))
        else:
            seen.add(one)


def ranking_of(scores: NDArray[Any], ids: Sequence[str], top_k: int | None) -> Ranking:
    """Return the ranking of treatments by their scores, shape ``(m,)``, with ``m`` at least 1; ties as they came."""
    order = _descending(scores)[: max(top_k or 0, LOGGED_TREATMENTS)]
    # orjson prints a float32 in its shortest form (0.31); through a Python float it would be 0.3100000023841858.
    values: list[Any] = orjson.loads(_array_json(scores[order]))
    best = [{"id": ids[index], "score": value} for index, value in zip(order.tolist(), values, strict=True)]
    logged = _best_json(len(ids), best[:LOGGED_TREATMENTS])
    if top_k is None:
        text = b'{"treatments":%d,"scores":%s}' % (len(ids), _array_json(scores))
    else:
        text = _best_json(len(ids), best[:top_k])
    return Ranking(text, float(values[0]), logged)


def _descending(scores: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices from the greatest score down, equal ones in their order.

    Not by negated scores: unsigned numbers would wrap around.
    """
    ascending = np.argsort(scores[::-1], kind="stable")
    descending: NDArray[np.intp] = len(scores) - 1 - ascending[::-1]
    return descending


def _array_json(values: NDArray[Any]) -> bytes:
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)


def _best_json(treatments: int, best: list[dict[str, Any]]) -> bytes:
    return b'{"treatments":%d,"best":%s}' % (treatments, orjson.dumps(best))
