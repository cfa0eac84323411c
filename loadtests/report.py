"""What was measured, as one table and as JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from loadtests.baseline import Baseline
from loadtests.target import Check, Findings, Target

_TARGET = "{:<5}{:<52}{:>12}{:>12}{:>12}{:>8}{:>7}{:>10}"
_FRACTION = 0.2
"""A bound below this reads better as one over something."""
_CHECK = "{:<5}{:<4}{:<56}{:>43}"


def table(found: Mapping[str, Findings], baseline: Baseline | None = None) -> str:
    """Return every section's targets as one table, and below it the checks and notes, by section.

    The last column has what the bound is on as it was in the ``baseline``: the ratio where there is one.
    """
    baseline = Baseline() if baseline is None else baseline
    targets = [target for findings in found.values() for target in findings.targets]
    files = baseline.files(targets)
    lines = [_TARGET.format("", "target", "figure", "bound", "peer", "ratio", "", "before" if files else "").rstrip()]
    lines += [_line(target, baseline) for target in targets]
    lines += ["", *([f"before: {', '.join(files)}", ""] if files else [])]
    lines += [check_line(name, check) for name, findings in found.items() for check in findings.checks]
    notes = [f"{name:<5}{note}" for name, findings in found.items() for note in findings.notes]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def check_line(section: str, check: Check) -> str:
    """Return what a check found."""
    return _CHECK.format(section, "ok" if check.holds else "NOT", check.text, check.found)


def _line(target: Target, baseline: Baseline) -> str:
    as_fraction = target.bound < _FRACTION
    before = baseline.of(target)
    sign = "≥" if target.at_least else "≤"
    bound = f"{target.bound:.4g} {target.unit}" if target.peer is None else f"{times(target.bound)} x"
    return _TARGET.format(
        target.source,
        target.text,
        f"{digits(target.figure)} {target.unit}".rstrip(),
        f"{sign} {bound}".rstrip(),
        "" if target.peer is None else f"{digits(target.peer)} {target.unit}".rstrip(),
        "" if target.peer is None else times(target.judged, as_fraction=as_fraction),
        target.verdict,
        "" if before is None else _judged(target, before.judged, as_fraction=as_fraction),
    ).rstrip()


def _judged(target: Target, value: float, *, as_fraction: bool) -> str:
    return digits(value) if target.peer is None else times(value, as_fraction=as_fraction)


def digits(value: float) -> str:
    """Return a figure with up to three significant digits, and no fewer than its whole number has."""
    size = abs(value)
    places = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def times(ratio: float, *, as_fraction: bool | None = None) -> str:
    """Return a ratio, as a fraction if it is small or if asked."""
    if as_fraction is None:
        as_fraction = ratio < _FRACTION
    return f"1/{digits(1 / ratio)}" if as_fraction and ratio > 0 else digits(ratio)


def as_json(found: Mapping[str, Findings], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything, the single rounds too."""
    return {
        **about,
        "sections": {
            name: {
                "targets": [
                    {**asdict(one), "judged": round(one.judged, 4), "verdict": one.verdict} for one in findings.targets
                ],
                "checks": [check._asdict() for check in findings.checks],
                "notes": findings.notes,
                "detail": findings.detail,
            }
            for name, findings in found.items()
        },
    }
