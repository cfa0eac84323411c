"""Calls for reports: A/B test, shadow, drift, skew.

Each also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.
"""

from functools import partial

from understudy.bootstrap.session import Session
from understudy.entrypoints.documents.experiments import ab_document, shadow_document
from understudy.entrypoints.proxy.control.handler import (
    REPORT_SECONDS,
    Bulkhead,
    ControlCall,
    answer,
    version_labeller,
    version_labels,
)
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.experiments import ab_report, shadow_report
from understudy.experiments.declaring import AbQuestion, named_b
from understudy.experiments.shadow_report import ShadowQuestion
from understudy.monitoring.drift_view import DriftQuestion


async def report_ab(call: ControlCall, question: AbQuestion, version: str | None) -> Reply:
    """Return whether the challenger, or the arm that ``version`` names, is better; an interim analysis due is done.

    Raises:
        NotRegistered: There is no such model or version, or nothing to compare.
        ValueError: ``version`` is the champion.
    """

    async def read(parts: Session) -> Reply:
        model, asked = call.model_name, question
        label = await version_labeller(parts, model)
        if version is not None:
            allocations = await parts.experiment_log.allocations(model)
            labels = await version_labels(parts, model)
            asked = question._replace(version_id=named_b(allocations, labels, model, version))
        found = await ab_report.report_ab(parts.experiment_log, parts.experiments, asked)
        return answer(ab_document(found, model, question.metric, label))

    return await call.run(Bulkhead.READ, read, REPORT_SECONDS)


async def report_shadow(call: ControlCall, question: ShadowQuestion, columns: int | None) -> Reply:
    """Return how the shadow compares with the champion.

    Raises:
        NotRegistered: There is no such model, or it never had a shadow.
    """

    async def read(parts: Session) -> Reply:
        if columns is not None:
            from understudy.entrypoints.cli.shadow.drawing import drawn_shadow  # noqa: PLC0415 - rich, for few calls
            from understudy.entrypoints.cli.shared.screens import drawn_document  # noqa: PLC0415 - as above

            return answer(await drawn_document(partial(drawn_shadow, parts, question), columns))
        label = await version_labeller(parts, call.model_name)
        versions = await parts.registry.list_versions(call.model_name)
        found = await shadow_report.report_shadow(parts.experiment_log, question, versions)
        return answer(shadow_document(found, call.model_name, label))

    return await call.run(Bulkhead.READ, read, REPORT_SECONDS)


async def report_drift(call: ControlCall, question: DriftQuestion, columns: int | None) -> Reply:
    """Return what has drifted from its baseline.

    Raises:
        NotRegistered: There is no such model or version.
    """

    async def read(parts: Session) -> Reply:
        # Imported here, in a thread of the control plane: it takes 0.1 s once, which no prediction waits for.
        from understudy.entrypoints.cli.drift.drawing import drawn_drift  # noqa: PLC0415 - rich, for few calls
        from understudy.entrypoints.cli.shared.screens import drawn_document  # noqa: PLC0415 - as above

        draw = partial(drawn_drift, parts, question)
        return answer((await draw()).document if columns is None else await drawn_document(draw, columns))

    return await call.run(Bulkhead.READ, read, REPORT_SECONDS)


async def report_skew(call: ControlCall, version: str | None, columns: int | None) -> Reply:
    """Return which features are served unlike the feature store.

    Raises:
        NotRegistered: There is no such model or version.
    """

    async def read(parts: Session) -> Reply:
        from understudy.entrypoints.cli.drift.skew import drawn_skew  # noqa: PLC0415 - rich, for few calls
        from understudy.entrypoints.cli.shared.screens import drawn_document  # noqa: PLC0415 - as above

        draw = partial(drawn_skew, parts, call.model_name, version)
        return answer((await draw()).document if columns is None else await drawn_document(draw, columns))

    return await call.run(Bulkhead.READ, read, REPORT_SECONDS)
