"""``understudy explain``: why an entity gets its answer, what changed around a model, or what an error code means."""

import re
from typing import Annotated

import typer
from rich.text import Text

from understudy.bootstrap.http_control_plane import model_path
from understudy.bootstrap.session import Session
from understudy.core.schema.typed_decoder import MAX_ENTITY_ID
from understudy.entrypoints.cli.explain.drawing import drawn_assignment, drawn_changes
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode, exit_code_for
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import facts, show
from understudy.entrypoints.cli.shared.screens import AtProxy, Drawn, show_screen
from understudy.errors import UnderstudyError, leaf_errors

_CODE = r"[Ee]\d{3}"
app = typer.Typer(add_completion=False)


@app.command()
def explain(
    *,
    subject: Annotated[str, typer.Argument(metavar="MODEL|CODE", help="A model's name, or an error code: E203.")],
    entity: Annotated[str | None, typer.Argument(metavar="ENTITY", help="The entity id of the calls.")] = None,
    category: Annotated[str | None, typer.Option(help="As the call's own category.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say who answers an entity and why (MODEL ENTITY), what changed of late (MODEL), or what an error means (CODE)."""
    if entity is None and re.fullmatch(_CODE, subject):
        _explain_code(subject, as_json=as_json)
        return
    if entity is None:
        _explain_changes(subject, as_json=as_json)
        return
    if not 0 < len(entity) <= MAX_ENTITY_ID:
        raise CommandRefused(ExitCode.USAGE, "no usable entity id", f"It has 1 to {MAX_ENTITY_ID} characters.")

    async def draw(session: Session) -> Drawn:
        return await drawn_assignment(session, subject, entity, category)

    parameters = {"entity_id": entity} | ({} if category is None else {"category": category})
    show_screen(draw, AtProxy(model_path(subject, "explanation"), parameters), as_json=as_json)


def _explain_changes(model: str, *, as_json: bool) -> None:
    async def draw(session: Session) -> Drawn:
        return await drawn_changes(session, model)

    show_screen(draw, AtProxy(model_path(model, "changes")), as_json=as_json)


def _explain_code(code: str, *, as_json: bool) -> None:
    known = {error.code: error for error in leaf_errors()}
    error: type[UnderstudyError] | None = known.get(code.upper())
    if error is None:
        raise CommandRefused(
            ExitCode.NOT_FOUND, f"no error has the code {code}", f"They are {', '.join(sorted(known))}."
        )
    exit_code = int(exit_code_for(error))
    document = {"code": error.code, "title": error.title, "next": error.hint, "exit_code": exit_code}
    text = (
        Text().append(f"{error.code} ", "bold").append(error.title, "bold").append("\n  → ", "cyan").append(error.hint)
    )
    show({"error": document}, text, facts([("exit code", str(exit_code))]), as_json=as_json)
