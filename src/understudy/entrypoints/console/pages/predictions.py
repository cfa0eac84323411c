"""The pages of one call and of one entity, and the search that leads to them."""

import time
from functools import partial
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from understudy.core.durations import moment
from understudy.core.prediction_log.prediction_id import id_seconds
from understudy.core.schema.typed_decoder import MAX_ENTITY_ID
from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import SEE_OTHER, Console, require_read
from understudy.entrypoints.console.pages.answers import reader_of
from understudy.entrypoints.console.pages.models import MODELS_SECONDS
from understudy.entrypoints.console.views.actors import noted_entries
from understudy.entrypoints.console.views.links import entity_path, prediction_path
from understudy.entrypoints.console.views.prediction import (
    EntitySeen,
    PredictionSeen,
    entity_page,
    find_page,
    prediction_page,
)
from understudy.errors import LoginNotAllowed, NotRegistered, RegistryUnavailable, ScopeMissing
from understudy.registry.receipts import EntityCalls, calls_of_entity, explain_prediction, unknown_prediction


async def show_prediction(console: Console, request: Request) -> Response:
    """Return the page of one call.

    Raises:
        NotRegistered: The log has none, or one of a model that this key may not see: the two are not told apart.
    """
    visitor = await console.visitor_of(request)
    asked = unquote(request.path_params["prediction"])
    seen = await console.opened.questions.search(partial(_call, console, asked))
    try:
        require_read(visitor, seen.found.answer.model_name)
    except ScopeMissing:
        raise unknown_prediction(asked) from None
    return console.page("prediction.html", visitor, view=prediction_page(seen), read_at=moment(time.time()))


async def show_entity(console: Console, request: Request) -> Response:
    """Return the page of one entity of a model.

    Raises:
        NotRegistered: There is no such model, or no entity can have this name.
        SchemaInvalid: No proxy can use the model's policy.
    """
    visitor, model = await reader_of(console, request)
    sent = request.path_params.get("entity")
    entity = request.query_params.get("id", "") if sent is None else unquote(sent)
    if not 0 < len(entity) <= MAX_ENTITY_ID or "\0" in entity:
        raise NotRegistered("there is no such entity", hint=f"An entity id has 1 to {MAX_ENTITY_ID} characters.")
    seen = await console.opened.questions.search(partial(_entity, console, model, entity))
    view, read_at = entity_page(seen), moment(seen.calls.until)
    return console.page("entity.html", visitor, model=model, view=view, read_at=read_at)


async def find(console: Console, request: Request) -> Response:
    """Lead from the search to the page of a call, or of an entity; where several things may be meant, ask."""
    visitor = await console.visitor_of(request)
    asked, model = request.query_params.get("q", "").strip()[: MAX_ENTITY_ID + 1], request.query_params.get("model", "")
    if not asked:
        return RedirectResponse("/", SEE_OTHER)
    is_id = id_seconds(asked) is not None  # those of entities may be of the same kind
    if is_id and await _is_call(console, visitor, asked):
        return RedirectResponse(prediction_path(asked), SEE_OTHER)
    names = [model] if model else await _models_of(console, visitor)
    if len(names) == 1 and not is_id:
        return RedirectResponse(entity_path(names[0], asked), SEE_OTHER)
    return console.page("find.html", visitor, view=find_page(asked, names, is_no_call=is_id))


async def _is_call(console: Console, visitor: Visitor, asked: str) -> bool:
    """Whether the log has a prediction with this id, of a model that the visitor may see."""
    try:
        seen = await console.opened.questions.search(partial(_call, console, asked))
    except NotRegistered:
        return False
    return visitor.may_read(seen.found.answer.model_name)


async def _models_of(console: Console, visitor: Visitor) -> list[str]:
    """Return the models that a visitor may see."""
    answer = await console.opened.questions.shared("models", console.opened.reads.models, MODELS_SECONDS)
    return [one.model_name for one in answer.value.models if visitor.may_read(one.model_name)]


async def _call(console: Console, prediction_id: str) -> PredictionSeen:
    session = console.opened.reads.session
    found = await explain_prediction(session.registry, session.receipts, prediction_id)
    versions = await session.registry.list_versions(found.answer.model_name)
    if found.policy is not None:
        [policy] = noted_entries([found.policy], await console.opened.reads.notes.read())
        found = found._replace(policy=policy)
    return PredictionSeen(found, {version.id: version.version for version in versions})


async def _entity(console: Console, model: str, entity: str) -> EntitySeen:
    policy = await console.opened.parts.policy_of(model)
    log, now = console.opened.reads.session.receipts, time.time()
    try:
        calls = await calls_of_entity(log, model, entity, now)
    except LoginNotAllowed:
        raise
    except RegistryUnavailable:  # too slow: Postgres has just answered. Who answers the entity is known all the same.
        calls = EntityCalls((), now, now, is_out_of_time=True)
    return EntitySeen(policy, entity, calls)
