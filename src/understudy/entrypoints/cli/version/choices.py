"""Reads what options of ``version register`` say of a model that does not say all of itself."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from understudy.core.schema.proposed import Bounds, Choices
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode

MAX_DIGITS = 9
"""Of a size that a person names."""


def choices_of(
    *,
    columns: Sequence[str] | None,
    shapes: Sequence[str] | None,
    bounds: Sequence[str] | None,
    stored: Sequence[str] | None,
    output: str | None,
    score: int | None,
    activation: str | None,
    answer_bounds: str | None,
    labels: str | None,
) -> Choices:
    """Return what a person said of a model.

    Raises:
        CommandRefused: An option cannot be read.
    """
    return Choices(
        columns={name: tuple(value.split(",")) for name, value in map(_optional_name, columns or ())},
        shapes={name: _sizes(value) for name, value in (_named("--shape", one) for one in shapes or ())},
        bounds={name: _bounds("--bounds", value) for name, value in (_named("--bounds", one) for one in bounds or ())},
        stored=tuple(stored or ()),
        output=output,
        score=score,
        activation=activation,
        answer_bounds=(None, None) if answer_bounds is None else _bounds("--answer-bounds", answer_bounds),
        labels=() if labels is None else tuple(labels.split(",")),
    )


def backend_of(settings: Sequence[str] | None) -> dict[str, Any]:
    """Return the backend settings that options name; ``true`` and ``false`` are truth values, all else is text."""
    flags: dict[str, Any] = {"true": True, "false": False}
    return {key: flags.get(value, value) for key, value in (_named("--backend", one) for one in settings or ())}


def _optional_name(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    return (name, value) if separator else ("", text)


def _named(option: str, text: str) -> tuple[str, str]:
    name, separator, value = text.rpartition("=") if option == "--bounds" else text.partition("=")
    if not separator or not name:
        raise CommandRefused(ExitCode.USAGE, f"{option} {text}: expected NAME=…", f"For example: {_EXAMPLES[option]}.")
    return name, value


_EXAMPLES = {
    "--shape": "--shape tokens=128",
    "--bounds": "--bounds age=0:130, or --bounds age=0: without an upper one",
    "--answer-bounds": "--answer-bounds 0:1",
    "--backend": "--backend model_name=churn",
}


def _sizes(text: str) -> tuple[int, ...]:
    sizes = [size for size in text.split(",") if size]
    if not all(size.isascii() and size.isdecimal() and len(size) <= MAX_DIGITS and int(size) > 0 for size in sizes):
        raise CommandRefused(
            ExitCode.USAGE, f"--shape …={text}: expected whole numbers above 0", f"For example: {_EXAMPLES['--shape']}."
        )
    return tuple(map(int, sizes))


def _bounds(option: str, text: str) -> Bounds:
    low, separator, high = text.partition(":")
    try:
        least, greatest = _number(low), _number(high)
    except ValueError:
        separator, least, greatest = "", None, None
    if not separator or (least is not None and greatest is not None and least > greatest):
        what = f"{option} {text}: expected two numbers with a colon between them, the lower one first"
        raise CommandRefused(ExitCode.USAGE, what, f"For example: {_EXAMPLES[option]}.")
    return least, greatest


def _number(text: str) -> float | None:
    if not text:
        return None
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return int(value) if value.is_integer() else value
