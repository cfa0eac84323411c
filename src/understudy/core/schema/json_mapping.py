"""A declared JSON mapping: where a service's requests have the inputs, and where its answers have the output.

Places are written in JSONPath (RFC 9535), of which names, indices and one ``[*]`` are read: ``$.rows[*].features`` is,
for each row, the member ``features`` of an element of the list ``rows``.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from understudy.core.schema.json_codec import json_text
from understudy.errors import BadAnswer

MAX_STEPS = 16
MAX_PATH_CHARACTERS = 1_024
PROTOCOL = "json"
_STEP = re.compile(r"""\.([A-Za-z_][\w-]*)|\['([^'\\]+)'\]|\["([^"\\]+)"\]|\[(0|[1-9]\d{0,5})\]|\[(\*)\]""", re.ASCII)
_URL_PATH = re.compile(r"/[!-~]*", re.ASCII)
SETTINGS = frozenset({"path", "ready_path", "inputs", "row", "output", "body"})


class Each(Enum):
    """The step ``[*]``."""

    ROW = "*"


EACH: Final = Each.ROW
Step: TypeAlias = str | int | Each


class RowForm(Enum):
    """How one row's inputs are written."""

    OBJECT = "object"
    """A member for each tensor, by its name."""
    LIST = "list"
    """The tensors in their order."""
    VALUE = "value"
    """The only tensor itself."""


class JsonMapping(NamedTuple):
    """What a version's ``backend`` declares of a service."""

    path: str
    ready_path: str | None
    inputs: tuple[Step, ...]
    row: RowForm
    output: tuple[Step, ...]
    body: Mapping[str, Any]
    """Members of each request that are the same for all."""

    @property
    def takes_rows(self) -> bool:
        """Whether one request has several rows."""
        return EACH in self.inputs

    def request(self, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Any:
        """Return the request's document for these rows; without ``[*]`` there is one."""
        written = [self._written(names, row) for row in rows]
        if not self.takes_rows:
            return _merged(self.body, _wrapped(self.inputs, written[0]))
        place = self.inputs.index(EACH)
        inner, outer = self.inputs[place + 1 :], self.inputs[:place]
        return _merged(self.body, _wrapped(outer, [_wrapped(inner, row) for row in written]))

    def output_of(self, answer: Any) -> Any:
        """Return what an answer has at the output's place.

        Raises:
            BadAnswer: It has nothing there.
        """
        return _found(answer, self.output, "$")

    def _written(self, names: Sequence[str], row: tuple[Any, ...]) -> Any:
        if self.row is RowForm.OBJECT:
            return dict(zip(names, row, strict=True))
        return list(row) if self.row is RowForm.LIST else row[0]


def parse_mapping(backend: Mapping[str, Any], *, tensors: int, batch: bool) -> JsonMapping:
    """Return the mapping that a version's ``backend`` declares.

    Raises:
        ValueError: Naming the setting that cannot be used.
    """
    path = require_url_path("path", backend.get("path"))
    ready = backend.get("ready_path")
    inputs = parse_json_path("inputs", backend.get("inputs", "$[*]" if batch else "$"))
    output = parse_json_path("output", backend.get("output", "$"))
    body = backend.get("body", {})
    row = next((form for form in RowForm if form.value == backend.get("row", "object")), None)
    if row is None or (row is RowForm.VALUE and tensors != 1):
        raise ValueError('backend.row must be "object", "list", or for a single tensor "value"')
    if any(isinstance(step, int) for step in inputs):
        raise ValueError("backend.inputs has an index: only names and [*] say where inputs go")
    if not isinstance(body, Mapping):
        raise ValueError("backend.body must be an object")  # noqa: TRY004 - what a registrar wrote
    _require_written(body)
    if body and (inputs[:1] == (EACH,) or (not inputs and row is not RowForm.OBJECT)):
        raise ValueError(
            "backend.body needs an object around the inputs: begin backend.inputs with a name, as $.rows[*]"
        )
    if EACH in inputs and not batch:
        raise ValueError("backend.inputs has [*], one element for each row, but input_schema.batch is false")
    return JsonMapping(
        path, None if ready is None else require_url_path("ready_path", ready), inputs, row, output, body
    )


def parse_json_path(setting: str, text: Any) -> tuple[Step, ...]:
    """Return the steps of a JSONPath; ``$`` has none.

    Raises:
        ValueError: It is none, or has steps that are not read.
    """
    problem = f'backend.{setting} must be a JSONPath of names, indices and at most one [*], such as "$.rows[*].score"'
    if not isinstance(text, str) or not text.startswith("$") or len(text) > MAX_PATH_CHARACTERS:
        raise ValueError(problem)
    steps: list[Step] = []
    at = 1
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None or len(steps) == MAX_STEPS:
            raise ValueError(problem)
        dotted, single, double, index, star = step.groups()
        steps.append(EACH if star else int(index) if index else dotted or single or double)
        at = step.end()
    if steps.count(EACH) > 1:
        raise ValueError(problem)
    return tuple(steps)


def require_url_path(setting: str, path: Any) -> str:
    """Return the path of a URL as it is, which goes into the head of each request.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(path, str) or len(path) > MAX_PATH_CHARACTERS or not _URL_PATH.fullmatch(path):
        raise ValueError(f'backend.{setting} must be the path of a URL in ASCII, such as "/score"')
    return path


def takes_one_row(protocol: str, backend: Mapping[str, Any]) -> bool:
    """Whether a call to the version's server has one row, whatever its schema says."""
    return protocol == "torchserve" or (protocol == PROTOCOL and "[*]" not in str(backend.get("inputs", "[*]")))


def _require_written(body: Mapping[str, Any]) -> None:
    try:
        json_text(body)
    except TypeError as problem:
        raise ValueError(f"backend.body cannot be written as JSON: {problem}") from None


def _wrapped(steps: Sequence[Step], value: Any) -> Any:
    for step in reversed(steps):
        value = {step: value}
    return value


def _merged(body: Mapping[str, Any], document: Any) -> Any:
    if not body or not isinstance(document, dict):
        return document
    merged = dict(body)
    for name, value in document.items():
        inner = body.get(name)
        merged[name] = _merged(inner, value) if isinstance(inner, Mapping) else value
    return merged


def _found(value: Any, steps: tuple[Step, ...], place: str) -> Any:
    for index, step in enumerate(steps):
        if step is EACH:
            if not isinstance(value, list):
                raise BadAnswer(f"the answer has no list at {place}, where backend.output has [*]")
            return [_found(element, steps[index + 1 :], f"{place}[*]") for element in value]
        fits = isinstance(value, dict if isinstance(step, str) else list)
        if not fits or (step not in value if isinstance(step, str) else step >= len(value)):
            raise BadAnswer(f"the answer has nothing at {place}{_shown(step)}, which backend.output names")
        value = value[step]
        place += _shown(step)
    return value


def _shown(step: Step) -> str:
    return f".{step}" if isinstance(step, str) else f"[{step}]"
