"""Infer calls of the Open Inference Protocol, apart from the message that they come in: what a caller may ask for."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from understudy.core.requests.caller_request import CallerRequest, refuse_inputs
from understudy.core.requests.tensor_inputs import shown
from understudy.core.value import Value
from understudy.errors import NotOffered

MAX_TEXT = 1_024
"""Characters of a request's own id."""
MAX_TIMEOUT_MICROSECONDS = 3_600_000_000
SHARED_MEMORY = "shared_memory_region"
_SEQUENCE = "sequence_id"
VERSION_OUTPUT = "understudy_version"
"""An output that callers may name beside the model's: who answered each row."""


class WantedOutput(Value, frozen=True, gc=False):
    """An output that a caller names, and whether its values are to come as bytes."""

    name: str
    binary: bool


class InferCall(Value, frozen=True, gc=False):
    """A body, read."""

    request: CallerRequest
    id: str | None
    """The caller's own, to be echoed."""
    outputs: tuple[WantedOutput, ...]
    """Empty: all."""
    binary: bool
    """Whether outputs come as bytes that the caller does not name."""
    timeout_seconds: float | None

    def require_outputs(self, model_name: str, names: Collection[str], *, names_version: bool = True) -> None:
        """Refuse an output that there is not: there are those of these ``names``, and :data:`VERSION_OUTPUT`.

        Args:
            model_name: Named in the refusal.
            names: The model's own outputs; none where only its answer names them.
            names_version: Whether callers are told who answered; else there is no such output.

        Raises:
            InputInvalid: With the place of the first other one.
        """
        require_outputs(self.outputs, model_name, names, names_version=names_version)


def require_outputs(
    wanted: Iterable[WantedOutput], model_name: str, names: Collection[str], *, names_version: bool = True
) -> None:
    """Do what :meth:`InferCall.require_outputs` does with outputs that a caller names."""
    if not names:
        return
    for index, one in enumerate(wanted):
        if one.name not in names and not (names_version and one.name == VERSION_OUTPUT):
            detail = f"{shown(model_name)} has no output {shown(one.name)}; it has: {', '.join(names)}"
            raise refuse_inputs(f"/outputs/{index}/name", detail)


class WantedOutputs:
    """Takes the outputs that a caller names, one after another."""

    def __init__(self) -> None:
        self._taken: dict[str, WantedOutput] = {}

    @property
    def all(self) -> tuple[WantedOutput, ...]:
        """Those that were taken."""
        return tuple(self._taken.values())

    def take(self, name: str, parameters: Mapping[str, Any], *, binary: bool) -> None:
        """Take one.

        Raises:
            InputInvalid: It was taken before: each is a whole tensor of the answer, and a body has room for 70,000.
            NotOffered: It is to be classified, or to be written to shared memory.
        """
        if name in self._taken:
            raise refuse_inputs(f"/outputs/{len(self._taken)}/name", f"there is another output {shown(name)}")
        if parameters.get("classification") or SHARED_MEMORY in parameters:
            raise NotOffered(f"output {shown(name)}: neither classification nor shared memory is offered")
        self._taken[name] = WantedOutput(name, binary)


def refuse_shared_memory(input_name: str, parameters: Mapping[str, Any]) -> None:
    """Refuse an input whose values are elsewhere.

    Raises:
        NotOffered: They are.
    """
    if SHARED_MEMORY in parameters:
        raise NotOffered(f"input {shown(input_name)}: there is no shared memory with callers")


def require_single_call(parameters: Mapping[str, Any]) -> None:
    """Refuse a call of a sequence.

    Raises:
        NotOffered: It is one.
    """
    if parameters.get(_SEQUENCE) not in (None, 0, ""):
        raise NotOffered("sequence_id: calls of a sequence keep no state here")


def timeout_of(parameters: Mapping[str, Any]) -> float | None:
    """Return the deadline that Triton's parameter ``timeout`` gives, in microseconds; 0 is none.

    Raises:
        InputInvalid: It is no number of them.
    """
    found = parameters.get("timeout")
    if found in (None, 0):
        return None
    if type(found) is not int or not 0 < found <= MAX_TIMEOUT_MICROSECONDS:
        raise refuse_inputs("/parameters/timeout", f"expected microseconds, up to {MAX_TIMEOUT_MICROSECONDS:,}")
    return found / 1e6
