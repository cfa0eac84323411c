"""Extras of the distribution: which one a command needs that is not installed.

It imports nothing that an extra brings.
"""

import sys
from collections.abc import Mapping, Sequence

from understudy import DISTRIBUTION

EXTRA_OF_PACKAGE: Mapping[str, str] = {
    **dict.fromkeys(("alembic", "asyncpg", "msgspec", "numpy", "pydantic", "pydantic_core", "rich"), "cli"),
    **dict.fromkeys(("sqlalchemy", "structlog", "typer", "yaml"), "cli"),
    **dict.fromkeys(("fastapi", "google", "grpc", "gunicorn", "httptools", "prometheus_client"), "proxy"),
    **dict.fromkeys(("hpack", "redis", "starlette", "uvicorn", "uvicorn_worker", "uvloop"), "proxy"),
    "scipy": "monitor",
    "jinja2": "console",
    "onnxruntime": "modelserver",
}
"""The extra of each package that some command imports as it is; what few users need is asked for where it is used."""
_EXTRA_OF_COMMAND = {
    ("serve", "proxy"): "proxy",
    ("serve", "monitor"): "monitor",
    ("serve", "console"): "console",
    ("modelserver",): "modelserver",
    ("demo",): "demo",
}
"""Commands that need one extra whole, whichever of its packages is missed first."""


def missing_extra(package: str, arguments: Sequence[str]) -> str | None:
    """Return the extra that brings a package for a command; ``None`` for a package that no extra brings."""
    found = EXTRA_OF_PACKAGE.get(package.partition(".")[0])
    if found is None:
        return None
    words = tuple(word for word in arguments if not word.startswith("-"))
    return next((extra for command, extra in _EXTRA_OF_COMMAND.items() if words[: len(command)] == command), found)


def install_advice(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def report_missing(package: str, extra: str, arguments: Sequence[str]) -> None:
    """Say on standard error what is not installed: for people, or for programs as every other problem is told."""
    detail = f"this command needs {package.partition('.')[0]}, which is not installed"
    advice = install_advice(extra)
    if "--json" not in arguments:
        sys.stderr.write(f"✖ {detail}\n  → {advice}\n")
        return
    from understudy.entrypoints.documents.json_text import json_text  # noqa: PLC0415 - for the few that ask

    error = {"code": None, "title": None, "detail": detail, "next": advice, "exit_code": EXIT_CODE}
    sys.stderr.write(json_text({"error": error}).decode() + "\n")


EXIT_CODE = 2
"""Of a command that cannot start like this: ``ExitCode.USAGE``, whose module needs the command line's extra itself."""
