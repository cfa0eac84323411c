"""Baselines, numeric and categorical: made from values of the training, kept as JSON; drift is measured from them.

Stored in ``ModelVersion.metrics`` as ``{"baseline": {"prediction": {...}, "inputs": {"tenure": {...}}}}``. Seed 000 has
no such key; the names of its ``detect_prediction_drift``, ``baseline_mean`` and ``baseline_std``, are read as a minimal
baseline of the predictions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.windows.histogram import Histogram

FloatArray = NDArray[np.float64]

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
MAX_CATEGORIES = 100
"""The most frequent ones are kept by name; what is left of 1 is the share of all others."""

_OF_ANSWERS = ("prediction", "classes")
_SHARE_ROUNDING = 1e-6
"""Shares that were written with few digits may add up to this much more than 1."""


@dataclass(frozen=True, slots=True)
class NumericBaseline:
    """The distribution of a score or of a numeric feature."""

    mean: float
    standard_deviation: float
    rows: int | None = None
    """How many values it rests on, nulls left out; ``None`` when that was not given, and then it counts as exact."""
    quantiles: Mapping[float, float] = field(default_factory=dict)
    """For people; what is computed is computed from the histogram."""
    histogram: Histogram = field(default_factory=Histogram)
    """Empty in a minimal baseline, which knows nothing but mean and standard deviation."""
    null_ratio: float | None = None
    positive_ratio: float | None = None
    """The share of scores from the schema's threshold on; ``None`` for a feature, and without a threshold."""


@dataclass(frozen=True, slots=True)
class CategoricalBaseline:
    """The shares of a feature's categories among its values that are not null."""

    shares: Mapping[str, float]
    """At most :data:`MAX_CATEGORIES`; they add up to 1 or less."""
    rows: int | None = None
    null_ratio: float | None = None


Baseline = NumericBaseline | CategoricalBaseline


class Baselines(NamedTuple):
    """All that is known of a version's training data."""

    prediction: Baseline | None
    inputs: Mapping[str, Baseline]
    classes: CategoricalBaseline | None = None
    """The shares of the classes that it answers with."""


def baseline_to_json(baseline: Baseline) -> dict[str, Any]:
    """Return the JSON object of one subject; what is not known is left out."""
    if isinstance(baseline, CategoricalBaseline):
        entries: dict[str, Any] = {
            "kind": "categorical",
            "n": baseline.rows,
            "shares": dict(baseline.shares),
            "null_ratio": baseline.null_ratio,
        }
    else:
        entries = {
            "kind": "numeric",
            "n": baseline.rows,
            "mean": baseline.mean,
            "std": baseline.standard_deviation,
            "quantiles": {str(share): value for share, value in baseline.quantiles.items()} or None,
            "histogram": {str(cell): count for cell, count in baseline.histogram.counts.items()} or None,
            "null_ratio": baseline.null_ratio,
            "positive_rate": baseline.positive_ratio,
        }
    return {key: value for key, value in entries.items() if value is not None}


def baselines_to_json(baselines: Baselines) -> dict[str, Any]:
    """Return what is stored under ``metrics["baseline"]``."""
    prediction = baselines.prediction
    inputs = {feature: baseline_to_json(baseline) for feature, baseline in baselines.inputs.items()}
    known = {"prediction": prediction, "classes": baselines.classes}
    return {name: baseline_to_json(one) for name, one in known.items() if one is not None} | {"inputs": inputs}


def baselines_of(metrics: Mapping[str, Any] | None) -> Baselines:
    """Return the baselines in a version's ``metrics``; a version without any has none.

    Raises:
        ValueError: Naming the field that is malformed, such as ``baseline.inputs.country.shares.BR``.
    """
    metrics = metrics or {}
    stored = _object(metrics.get("baseline", {}), "baseline")
    inputs = _object(stored.get("inputs", {}), "baseline.inputs")
    prediction = (
        baseline_of(stored["prediction"], "baseline.prediction")
        if "prediction" in stored
        else _reference_baseline(metrics)
    )
    classes = baseline_of(stored["classes"], "baseline.classes") if "classes" in stored else None
    if classes is not None and not isinstance(classes, CategoricalBaseline):
        raise ValueError("baseline.classes.kind: expected 'categorical'")
    return Baselines(
        prediction, {name: baseline_of(entry, f"baseline.inputs.{name}") for name, entry in inputs.items()}, classes
    )


def baseline_of(stored: Any, where: str) -> Baseline:
    """Return the baseline of one subject from its JSON object; keys that are not known are not looked at.

    Raises:
        ValueError: Naming the field, under ``where``.
    """
    entry = _object(stored, where)
    kind = entry.get("kind", "numeric")
    if kind == "numeric":
        return _numeric(entry, where)
    if kind == "categorical":
        return _categorical(entry, where)
    raise ValueError(f"{where}.kind: expected 'numeric' or 'categorical', got {kind!r}")


def with_baselines(metrics: Any, new: Baselines, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics with new baselines; those of other subjects, and all other keys, stay.

    Stored baselines that cannot be read are dropped: with one of them a version's drift is not judged at all.

    Args:
        metrics: Of the version, or ``None``.
        new: Replace the stored ones of the same subjects.
        changed: Who set them, when, from what and why; kept under ``baseline.changed``.

    Raises:
        ValueError: The metrics are no object.
    """
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ValueError(f"expected the version's metrics to be an object, got {metrics!r}")
    before = _object_of(metrics, "baseline")
    inputs = {name: entry for name, entry in _object_of(before, "inputs").items() if _is_readable(entry)}
    kept = {name: entry for name, entry in before.items() if name not in _OF_ANSWERS or _is_readable(entry)}
    written = baselines_to_json(new)
    inputs |= written.pop("inputs")
    return {**(metrics or {}), "baseline": {**kept, **written, "inputs": inputs, "changed": dict(changed)}}


def category_of(value: str | float) -> str:
    """Return the category that a JSON value is: a whole number without its fraction, ``true`` and ``false``."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if value == int(value) else repr(value)


def _reference_baseline(metrics: Mapping[str, Any]) -> NumericBaseline | None:
    if "baseline_mean" not in metrics and "baseline_std" not in metrics:
        return None
    return NumericBaseline(
        mean=_number(metrics.get("baseline_mean"), "baseline_mean"),
        standard_deviation=_number(metrics.get("baseline_std"), "baseline_std", least=0),
    )


def _object_of(holder: Any, name: str) -> Mapping[str, Any]:
    found = holder.get(name) if isinstance(holder, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _is_readable(entry: Any) -> bool:
    try:
        baseline_of(entry, "baseline")
    except ValueError:
        return False
    return True


def _numeric(entry: Mapping[str, Any], where: str) -> NumericBaseline:
    return NumericBaseline(
        mean=_number(entry.get("mean"), f"{where}.mean"),
        standard_deviation=_number(entry.get("std"), f"{where}.std", least=0),
        rows=_rows(entry, where),
        quantiles={
            _ratio_key(share, f"{where}.quantiles"): _number(value, f"{where}.quantiles.{share}")
            for share, value in _object(entry.get("quantiles", {}), f"{where}.quantiles").items()
        },
        histogram=_histogram(entry.get("histogram", {}), f"{where}.histogram"),
        null_ratio=_optional_ratio(entry, "null_ratio", where),
        positive_ratio=_optional_ratio(entry, "positive_rate", where),
    )


def _categorical(entry: Mapping[str, Any], where: str) -> CategoricalBaseline:
    stored = _object(entry.get("shares"), f"{where}.shares")
    shares = {name: _number(share, f"{where}.shares.{name}", least=0) for name, share in stored.items()}
    if not shares or not 0 < sum(shares.values()) <= 1 + _SHARE_ROUNDING:
        raise ValueError(f"{where}.shares: expected shares that add up to 1 or less, got {sum(shares.values()):g}")
    return CategoricalBaseline(
        shares=shares, rows=_rows(entry, where), null_ratio=_optional_ratio(entry, "null_ratio", where)
    )


def _histogram(stored: Any, where: str) -> Histogram:
    counts = {}
    for cell, count in _object(stored, where).items():
        try:
            counts[int(cell)] = _count(count, f"{where}.{cell}")
        except ValueError as problem:
            raise ValueError(
                f"{where}.{cell}: expected a cell's number and its count above 0, got {count!r}"
            ) from problem
    return Histogram(counts)


def _rows(entry: Mapping[str, Any], where: str) -> int | None:
    return _count(entry["n"], f"{where}.n") if "n" in entry else None


def _optional_ratio(entry: Mapping[str, Any], name: str, where: str) -> float | None:
    if name not in entry:
        return None
    return _number(entry[name], f"{where}.{name}", least=0, most=1)


def _ratio_key(text: str, where: str) -> float:
    try:
        return _number(float(text), where, least=0, most=1)
    except ValueError as problem:
        raise ValueError(f"{where}: expected keys from 0 to 1, got {text!r}") from problem


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: expected an object, got {value!r}")  # noqa: TRY004  # one kind of error for a bad file
    return value


def _count(value: Any, where: str) -> int:
    if type(value) is not int or value <= 0:
        raise ValueError(f"{where}: expected a whole number above 0, got {value!r}")
    return value


def _number(value: Any, where: str, least: float = float("-inf"), most: float = float("inf")) -> float:
    if type(value) not in (int, float) or not isfinite(value) or not least <= value <= most:
        span = "" if least == float("-inf") else f" from {least:g}" + (f" to {most:g}" if isfinite(most) else " on")
        raise ValueError(f"{where}: expected a finite number{span}, got {value!r}")
    return float(value)
