"""A version and what its model servers say of it, before it is registered: they agree, or nothing is written."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from understudy.core.schema.described import DescribedModel, all_problems, contradictions
from understudy.core.schema.proposed import Proposal
from understudy.errors import BackendUnavailable, BadAnswer, ModelContradicts
from understudy.ports.registry.registry import NewVersion, VersionRecord
from understudy.ports.upstream.model_description import DescribeModel, ModelAt

MAX_ASKED: Final = 32
"""Endpoints of a version that are asked, all at once: replicas say the same."""


class ServerAnswer(NamedTuple):
    """What one model server says of a version's schemas."""

    endpoint: str
    is_comparable: bool
    """Whether it told of any tensor."""
    problem: str
    """Why the server's schemas could not be read; empty where it told of them, or has none to tell of."""
    differences: tuple[str, ...]


async def ask_servers(new: NewVersion, describe: DescribeModel) -> list[ServerAnswer]:
    """Return what each server of a version says of its schemas, in the order of its endpoints.

    Raises:
        SchemaInvalid: A schema cannot be compiled.
    """
    from understudy.core.schema.compile import compile_input_schema, compile_output_schema  # noqa: PLC0415 - numpy

    inputs, outputs = compile_input_schema(new.input_schema), compile_output_schema(new.output_schema)

    async def ask(endpoint: str) -> ServerAnswer:
        try:
            model = await describe(ModelAt(new.model_name, new.protocol, endpoint, new.backend))
        except (BackendUnavailable, BadAnswer) as problem:
            return ServerAnswer(endpoint, is_comparable=False, problem=problem.detail, differences=())
        found = tuple(contradictions(inputs, outputs, model))
        return ServerAnswer(endpoint, bool(model.inputs or model.outputs), "", found)

    return await asyncio.gather(*(ask(endpoint) for endpoint in dict.fromkeys(new.endpoints[:MAX_ASKED])))


def schemas_of(record: VersionRecord, model: DescribedModel) -> Proposal:
    """Return the schemas of another version, for a model that takes and gives the same.

    Raises:
        SchemaInvalid: A schema of it cannot be compiled: SQL wrote it.
        ModelContradicts: The model has other tensors.
    """
    from understudy.core.schema.compile import compile_input_schema, compile_output_schema  # noqa: PLC0415 - numpy

    inputs, outputs = compile_input_schema(record.input_schema), compile_output_schema(record.output_schema)
    found = contradictions(inputs, outputs, model)
    if found:
        other = "Leave --like out, and schemas are proposed from what the model says; or name another version."
        raise ModelContradicts(f"{model.source} is unlike version {record.version}: {all_problems(found)}", hint=other)
    return Proposal(dict(record.input_schema), dict(record.output_schema), ())


def require_agreement(answers: Sequence[ServerAnswer]) -> None:
    """Refuse a version that a model server contradicts.

    Raises:
        ModelContradicts: Names each such server and its first differences.
    """
    said = [f"{answer.endpoint}: {all_problems(answer.differences)}" for answer in answers if answer.differences]
    if said:
        raise ModelContradicts(". ".join(said))
