"""The pages that say why a call got its answer, and who answers an entity."""

from collections.abc import Mapping
from shlex import quote
from typing import NamedTuple

from understudy.core.routing.policy import ServingPolicy
from understudy.core.routing.route import Assignment, assignment
from understudy.entrypoints.cli.shared.texts.assignment_text import assignment_facts
from understudy.entrypoints.cli.shared.texts.receipt_text import (
    answer_of,
    exact_moment,
    latency_words,
    receipt_facts,
    receipt_sentence,
    searched_words,
    status_words,
)
from understudy.entrypoints.console.views.links import entity_path, model_path, prediction_path
from understudy.entrypoints.console.views.models import NONE_TO_SEE
from understudy.entrypoints.console.views.tone import NOTHING, Tone
from understudy.ports.prediction_log.receipts import Receipt
from understudy.registry.receipts import EntityCalls, Explained, searched_for

_TRIES = (
    "Is it the entity id as callers send it? Each text gets a version, also one that no caller ever sent.",
    "A call is in the log some seconds after its answer.",
    "understudy log query finds what is older, or archived: the second command below.",
    "It was taken for an entity: the id of a prediction is a UUID of version 7, which an answer has as prediction_id.",
)
_QUERY = "SELECT * FROM predictionlog WHERE entity_id = 'ENTITY'"
"""To be run by who reads it, with the entity in its place: the archive has what is older than a week."""


class PredictionSeen(NamedTuple):
    """What was read of a call."""

    found: Explained
    labels: Mapping[int, str]
    """Of the model's versions, by their ids."""


class PredictionPage(NamedTuple):
    """One call, and why it got its answer."""

    prediction_id: str
    model: str
    model_href: str
    sentence: str
    tone: Tone
    facts: tuple[tuple[str, str], ...]
    entity: str
    entity_href: str
    commands: tuple[str, ...]


class EntitySeen(NamedTuple):
    """What was read of an entity."""

    policy: ServingPolicy
    entity_id: str
    calls: EntityCalls


class CallRow(NamedTuple):
    """One call of an entity."""

    at: str
    href: str
    """Of its page; empty for a call without an id."""
    version: str
    role: str
    answer: str
    status: str
    tone: Tone
    latency: str
    generation: str


class EntityPage(NamedTuple):
    """Who answers an entity, why, and what it got of late."""

    model: str
    entity: str
    sentence: str
    hashed: str
    facts: tuple[tuple[str, str], ...]
    calls: tuple[CallRow, ...]
    searched: str
    tries: tuple[str, ...]
    """What to try where nothing was found; else empty."""
    commands: tuple[str, ...]


class ModelChoice(NamedTuple):
    """A model that an entity may be looked up in."""

    name: str
    href: str


class FindPage(NamedTuple):
    """What was typed into the search, where it may be an entity of several models."""

    asked: str
    sentence: str
    models: tuple[ModelChoice, ...]
    commands: tuple[str, ...]


def prediction_page(seen: PredictionSeen) -> PredictionPage:
    """Return the page; its words are those of ``understudy log show``."""
    answer, named = seen.found.answer, seen.found.answer.prediction_id or ""
    return PredictionPage(
        named,
        answer.model_name,
        model_path(answer.model_name),
        receipt_sentence(answer),
        _tone(answer),
        tuple(receipt_facts(seen.found, seen.labels)),
        answer.entity_id,
        entity_path(answer.model_name, answer.entity_id),
        (f"understudy log show {quote(named)}", _explain(answer.model_name, answer.entity_id)),
    )


def entity_page(seen: EntitySeen) -> EntityPage:
    """Return the page; its words are those of ``understudy explain MODEL ENTITY``."""
    policy, entity = seen.policy, seen.entity_id
    found = assignment(policy, entity)
    return EntityPage(
        policy.model_name,
        entity,
        _assigned(found),
        found.hashed,
        tuple(assignment_facts(policy, found)),
        tuple(map(_row, seen.calls.calls)),
        searched_words(seen.calls),
        () if seen.calls.calls else _TRIES,
        (
            _explain(policy.model_name, entity),
            f"understudy log query {quote(_QUERY)} --model {quote(policy.model_name)} --since 30d",
        ),
    )


def find_page(asked: str, names: list[str], *, is_no_call: bool = False) -> FindPage:
    """Return what is asked where an entity may be of several models, or the log has no prediction with this id."""
    choices = tuple(ModelChoice(name, entity_path(name, asked)) for name in names)
    sentence = f"Of which model is {asked} an entity?" if choices else NONE_TO_SEE
    commands = (f"understudy explain MODEL {quote(asked)}",)
    if is_no_call:
        missing = (
            f"The log has no such prediction{searched_for(asked)}. A call is there some seconds after its answer; "
            "once its month is archived, understudy log query finds it."
        )
        sentence = f"{missing} If it is an entity, of which model?" if choices else missing
        return FindPage(asked, sentence, choices, (f"understudy log show {quote(asked)}", *commands))
    return FindPage(asked, sentence, choices, commands)


def _assigned(found: Assignment) -> str:
    return f"{found.entity_id} gets {found.version} ({found.role}) now: bucket {found.bucket} of 100."


def _row(found: Receipt) -> CallRow:
    return CallRow(
        exact_moment(found.predicted_at),
        prediction_path(found.prediction_id) if found.prediction_id else "",
        found.version,
        found.role or NOTHING,
        answer_of(found),
        status_words(found),
        _tone(found),
        latency_words(found).removesuffix(" in the proxy"),
        NOTHING if found.generation is None else str(found.generation),
    )


def _tone(found: Receipt) -> Tone:
    if found.status == "ok":
        return Tone.CALM
    return Tone.WAIT if found.status == "fallback" else Tone.BAD


def _explain(model_name: str, entity_id: str) -> str:
    return f"understudy explain {quote(model_name)} {quote(entity_id)}"
