"""The page of who changed a model, and when."""

from datetime import UTC, datetime
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from understudy.entrypoints.console.console import Console
from understudy.entrypoints.console.pages.answers import done_of, reader_of
from understudy.entrypoints.console.views.audit import audit_asked, audit_page, audit_wanted


async def show_audit(console: Console, request: Request) -> Response:
    """Return the newest changes of a model that are like the filters say.

    Raises:
        NotRegistered: There is no such model.
        UnknownRoute: A filter is none.
    """
    visitor, model = await reader_of(console, request)
    asked = audit_asked(request.query_params)
    wanted = audit_wanted(asked, datetime.now(UTC))
    seen = await console.opened.questions.look(partial(console.opened.reads.audit, model, wanted))
    values = {
        "model": model,
        "view": audit_page(seen, asked),
        "may_operate": visitor.may_operate(model),
        "done": done_of(console, request, visitor),
    }
    return console.page("audit.html", visitor, **values)
