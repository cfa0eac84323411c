"""The file that ``--html`` names."""

from pathlib import Path

from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode


def write_page(path: Path, content: str) -> None:
    """Write a report.

    Raises:
        CommandRefused: It cannot be written.
    """
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as problem:
        raise CommandRefused(
            ExitCode.USAGE, f"{path} cannot be written: {problem.strerror}", "Name another file."
        ) from None
