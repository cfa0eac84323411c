"""JSON logging to standard output, one object a line, for our own events and those of libraries."""

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict

from understudy.ports.telemetry.tracing import CURRENT


def name_trace(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Add ``trace_id`` and ``span_id`` of the current call, while tracing is on."""
    span = CURRENT.get()
    if span is not None and not span.is_over:
        event["trace_id"], event["span_id"] = span.context.trace_id, span.context.span_id
    return event


_SHARED: list[structlog.typing.Processor] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    name_trace,
    structlog.processors.format_exc_info,
]


def log_as_json(level: int = logging.INFO) -> None:
    """Set up logging for this process."""
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
            foreign_pre_chain=_SHARED,
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)


def keep_log_off_output() -> None:
    """Log only errors, and to standard error: a command's own findings say what libraries warn of."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
