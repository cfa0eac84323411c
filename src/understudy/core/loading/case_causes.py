"""What may have made a version's answers differ from those of its cases: from the numbers alone, in words.

Each cause is a rule that turns all answers into those expected, or all of them the other way. A rule that holds for
some cases and not for others is none, and a rule with a number in it (a factor, an offset) has to hold for three.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.loading.cases import Case

MIN_CASES: Final = 2
"""Cases that a rule without a number of its own has to hold for."""
MIN_CASES_FOR_NUMBER: Final = 3
_HALF_EPSILON: Final = 2.0**-10
"""Relative distance of neighbours in float16. Source: IEEE 754, ten bits of fraction."""
_BFLOAT_EPSILON: Final = 2.0**-7
_DECIMALS: Final = range(4)
"""Decimals that answers may be rounded to."""
_DRIFT_SHARE: Final = 0.02
"""Of the spread of what is expected: an answer that is farther off is of another model."""
_SHOWN: Final = 10
"""Places of an order, or pairs of labels, that are told."""
Numbers = NDArray[np.float64]


class _Figures(NamedTuple):
    """Of each case, row by row: what came, what was expected, and by how much they may differ."""

    found: Numbers
    expected: Numbers
    allowed: Numbers

    def near(self, one: Numbers, other: Numbers) -> bool:
        """Whether all numbers are as near as the cases ask."""
        return bool(np.all(np.abs(one - other) <= self.allowed))


def likely_cause(asked: Sequence[tuple[Case, Mapping[str, Any]]], labels: Sequence[str] = ()) -> str:
    """Return what may be wrong with a version, of which at least one answer differs; empty: the numbers do not say.

    Args:
        asked: Cases with their answers as callers get them, the good ones too.
        labels: What the version calls the values of a list.
    """
    if len(asked) < MIN_CASES:
        return ""
    if all(isinstance(case.expected, str) and "label" in answer for case, answer in asked):
        return _exchanged_labels([(str(case.expected), str(answer["label"])) for case, answer in asked])
    figures = _figures_of(asked)
    if figures is None:
        return ""
    with np.errstate(all="ignore"):  # a rule that makes an infinity or NaN of a number does not hold
        if np.ptp(figures.expected, axis=0).max() == 0:
            return ""
        return next(filter(None, (rule(figures, labels) for rule in _RULES)), "")


def order_cause(count: int, is_met: Callable[[int, int], bool]) -> str:
    """Return in which wrong order a call's rows were answered; empty: in none of those that are known.

    Args:
        count: Rows of the call.
        is_met: Whether the answer that stands at the first row is the one that the second row expects.
    """
    orders: Mapping[str, Callable[[int], int]] = {
        "each row has the answer of the first one": lambda _: 0,
        "the answers come in the reverse order": lambda row: count - 1 - row,
        "each row has the answer of the next one": lambda row: (row + 1) % count,
        "each row has the answer of the one before": lambda row: (row - 1) % count,
    }
    return next((words for words, of in orders.items() if all(is_met(row, of(row)) for row in range(count))), "")


def _figures_of(asked: Sequence[tuple[Case, Mapping[str, Any]]]) -> _Figures | None:
    expected = [case.expected if isinstance(case.expected, list) else [case.expected] for case, _ in asked]
    found = [
        answer.get("scores", []) if isinstance(case.expected, list) else [answer.get("score")] for case, answer in asked
    ]
    sizes = {len(row) for row in (*expected, *found)}
    if len(sizes) != 1 or any(not isinstance(one, int | float) for row in (*expected, *found) for one in row):
        return None
    wanted = np.array(expected, np.float64)
    tolerances = np.array([[case.absolute, case.relative] for case, _ in asked])
    return _Figures(np.array(found, np.float64), wanted, tolerances[:, :1] + tolerances[:, 1:] * np.abs(wanted))


def _exchanged_labels(pairs: Sequence[tuple[str, str]]) -> str:
    """Say which labels come for which, where each label has one that always comes for it."""
    meant: dict[str, str] = {}
    if any(meant.setdefault(expected, found) != found for expected, found in pairs):
        return ""
    moved = [(expected, found) for expected, found in meant.items() if expected != found]
    if len(meant) < MIN_CASES or len(set(meant.values())) < len(meant):
        return _one_label(meant)
    told = ", ".join(f"{found!r:.60} for {expected!r:.60}" for expected, found in moved[:_SHOWN])
    return f"each label has another one's place: {told}. Its classes are in another order (output_schema.labels)"


def _one_label(meant: Mapping[str, str]) -> str:
    is_same = len(meant) > 1 and len(set(meant.values())) == 1
    return f"each answer is {next(iter(meant.values()))!r:.60}, whatever is asked" if is_same else ""


def _is_constant(figures: _Figures, _: Sequence[str]) -> str:
    if len(figures.found) < MIN_CASES_FOR_NUMBER or np.ptp(figures.found, axis=0).max() > 0:
        return ""
    return f"each answer is {_numbers(figures.found[0])}, whatever is asked: the inputs do not reach the model"


def _is_other_order(figures: _Figures, labels: Sequence[str]) -> str:
    size = figures.expected.shape[1]
    off = np.abs(figures.found[:, None, :] - figures.expected[:, :, None]) <= figures.allowed[:, :, None]
    fits = off.all(axis=0)
    if size < MIN_CASES or not (fits.sum(axis=1) == 1).all():
        return ""
    order = [int(place) for place in fits.argmax(axis=1)]
    if len(set(order)) < size or order == list(range(size)):
        return ""
    more = ", …" if size > _SHOWN else ""
    places = ", ".join(map(str, range(size)[:_SHOWN])), ", ".join(map(str, order[:_SHOWN]))
    said = f"the values expected at the places {places[0]}{more} stand at {places[1]}{more}"
    if len(labels) == size:
        named = [f"{labels[row]!r:.60} at {labels[place]!r:.60}" for row, place in enumerate(order)]
        said = f"{said} ({', '.join(named[:_SHOWN])}{more})"
    return f"{said}: its classes are in another order"


def _is_other_class(figures: _Figures, _: Sequence[str]) -> str:
    if figures.expected.shape[1] != 1 or not figures.near(1 - figures.found, figures.expected):
        return ""
    return "each answer is 1 less what is expected: it is the other class's (output_schema.score_index)"


def _is_activation(figures: _Figures, _: Sequence[str]) -> str:
    """Say which activation is missing, or is one too many."""
    squash, name = (_sigmoid, "sigmoid") if figures.expected.shape[1] == 1 else (_softmax, "softmax")
    if figures.near(squash(figures.found), figures.expected):
        return f"the {name} of each answer is what is expected: it is missing (output_schema.activation)"
    if figures.near(squash(figures.expected), figures.found):
        return f"each answer is the {name} of what is expected: one too many (output_schema.activation)"
    if any(figures.near(undo(figures.found), figures.expected) for undo in (np.exp, np.expm1)):
        return "each answer is the logarithm of what is expected: the target's own is not undone"
    return ""


def _is_scaled(figures: _Figures, _: Sequence[str]) -> str:
    """Say by which number each answer is multiplied, or is off."""
    if len(figures.found) < MIN_CASES_FOR_NUMBER:
        return ""
    large = np.abs(figures.expected) > figures.allowed
    factor = float(np.median(figures.found[large] / figures.expected[large])) if large.any() else 0.0
    if abs(factor) > 0 and figures.near(figures.found / factor, figures.expected):
        return f"each answer is {factor:.4g} times what is expected: a unit, or a scale"
    offset = float(np.median(figures.found - figures.expected))
    if figures.near(figures.found - offset, figures.expected):
        return f"each answer is {abs(offset):.4g} {'above' if offset > 0 else 'below'} what is expected"
    return ""


def _is_rounded(figures: _Figures, _: Sequence[str]) -> str:
    """Say to what each answer is rounded, where it is: to decimals, or to a float of 16 bits."""
    found, off = figures.found, np.abs(figures.found - figures.expected)
    if len(found) < MIN_CASES_FOR_NUMBER:
        return ""
    for decimals in _DECIMALS:
        is_round = np.abs(np.round(found, decimals) - found) <= 1e-7 * np.maximum(1, np.abs(found))
        if is_round.all() and (off <= 0.5 * 10.0**-decimals + figures.allowed).all():
            to = f"{decimals} decimal{'s' if decimals > 1 else ''}" if decimals else "a whole number"
            return f"each answer is rounded to {to}"
    single = found.astype(np.float32)  # as JSON has it, a number of fewer bits is as short as one of 32 may be
    is_brain = ((single.view(np.uint32) & 0xFFFF) == 0).all()
    is_half = (single.astype(np.float16).astype(np.float32) == single).all()
    # In this order: of numbers near 1 those of the first have a fraction that fits into the second, too.
    for name, is_short, epsilon in (("bfloat16", is_brain, _BFLOAT_EPSILON), ("float16", is_half, _HALF_EPSILON)):
        if is_short and (off <= 4 * epsilon * np.maximum(np.abs(figures.expected), 2.0**-14) + figures.allowed).all():
            return f"each answer is a number of 16 bits ({name}): the model computes with less precision"
    return ""


def _is_drift(figures: _Figures, _: Sequence[str]) -> str:
    """Say how far the farthest answer is off, where all are near: another build or precision, and no other model."""
    off = np.abs(figures.found - figures.expected)
    spread = float(np.ptp(figures.expected))
    most = float(off.max())
    if most > _DRIFT_SHARE * spread:
        return ""
    return f"no answer is off by more than {most:.2g}: as by another precision or runtime, or further training"


def _numbers(values: Numbers) -> str:
    shown = ", ".join(f"{one:.6g}" for one in values[:_SHOWN])
    return shown if len(values) == 1 else f"[{shown}{', …' if len(values) > _SHOWN else ''}]"


def _sigmoid(values: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -700, 700))))


def _softmax(values: Numbers) -> Numbers:
    weights = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


_RULES: Final = (_is_constant, _is_other_order, _is_other_class, _is_activation, _is_scaled, _is_rounded, _is_drift)
"""From the most particular one on: the first that holds is told."""
