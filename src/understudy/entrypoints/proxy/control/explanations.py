"""Calls that explain: what changed around a model of late, and why an entity gets its answer.

Each also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.
"""

from typing import TYPE_CHECKING

from understudy.bootstrap.session import Session
from understudy.entrypoints.proxy.control.handler import REPORT_SECONDS, Bulkhead, ControlCall, answer
from understudy.entrypoints.proxy.messages.reply import Reply

if TYPE_CHECKING:
    from understudy.entrypoints.cli.shared.screens import Drawn


async def show_changes(call: ControlCall, columns: int | None) -> Reply:
    """Return what changed around a model within an hour, as ``understudy explain MODEL`` does.

    Raises:
        NotRegistered: There is no such model.
    """

    async def look(parts: Session) -> Reply:
        # Imported here, in a thread of the control plane: it takes 0.1 s once, which no prediction waits for.
        from understudy.entrypoints.cli.explain.drawing import drawn_changes  # noqa: PLC0415 - rich, for few calls
        from understudy.entrypoints.cli.shared.screens import drawn_document  # noqa: PLC0415 - as above

        async def draw() -> "Drawn":
            return await drawn_changes(parts, call.model_name)

        return answer((await draw()).document if columns is None else await drawn_document(draw, columns))

    return await call.run(Bulkhead.READ, look, REPORT_SECONDS)


async def explain_entity(call: ControlCall, entity: str, category: str | None, columns: int | None) -> Reply:
    """Return which version answers an entity, and why, as ``understudy explain MODEL ENTITY`` does.

    Raises:
        NotRegistered: There is no such model, or it has no policy.
        SchemaInvalid: No proxy can use its policy.
    """

    async def look(parts: Session) -> Reply:
        from understudy.entrypoints.cli.explain.drawing import drawn_assignment  # noqa: PLC0415 - rich, for few calls
        from understudy.entrypoints.cli.shared.screens import drawn_document  # noqa: PLC0415 - as above

        async def draw() -> "Drawn":
            return await drawn_assignment(parts, call.model_name, entity, category)

        return answer((await draw()).document if columns is None else await drawn_document(draw, columns))

    return await call.run(Bulkhead.READ, look, REPORT_SECONDS)
