"""The baselines that a version's own calls give, where there is no training data at hand."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import orjson

from understudy.core.drift.baseline import MAX_CATEGORIES, Baseline, CategoricalBaseline, NumericBaseline
from understudy.core.drift.baseline_tally import NumericTally
from understudy.core.drift.evidence import clustered, design_effect
from understudy.core.drift.limits import DEFAULT_POLICY
from understudy.core.drift.subject_window import SubjectWindow
from understudy.core.drift.training_profile import CellRefused, TrainingColumns, TrainingProfile
from understudy.core.prediction_log.input_sampling import InputSample
from understudy.core.schema.features import Feature
from understudy.core.windows.window import MAX_SCORE


def logged_inputs(samples: Sequence[InputSample], features: Sequence[Feature]) -> dict[str, Baseline]:
    """Return the baselines of logged inputs by name; none while there are too few for a comparison.

    Calls of one entity are alike, so ``rows`` is the number of entities: less than they are worth, never more.

    Args:
        samples: In any order.
        features: Of the version. One with a shape has no baseline, nor has text that is hardly ever the same.
    """
    entities = len({sample.entity_id for sample in samples})
    if entities < DEFAULT_POLICY.minimum_rows:
        return {}
    documents = [orjson.loads(sample.inputs) for sample in samples]
    found = {feature.name: _input_baseline(feature, documents) for feature in features if not feature.shape}
    return {
        name: replace(known, rows=min(entities, known.rows or entities))
        for name, known in found.items()
        if known is not None
    }


def _input_baseline(feature: Feature, documents: Sequence[Mapping[str, Any]]) -> Baseline | None:
    """Return a baseline of the values that were logged and are the feature's by today's schema."""
    profile = TrainingProfile(TrainingColumns(None, (feature,)))
    for document in documents:
        if feature.name in document:
            with suppress(CellRefused):
                profile.add(document)
    try:
        return profile.baselines().inputs.get(feature.name)
    except CellRefused:
        return None


def logged_classes(hours: Sequence[SubjectWindow]) -> CategoricalBaseline | None:
    """Return the baseline of the classes that a version answered with; ``None`` while there are too few answers.

    ``rows`` is the number of independent answers that would know the shares as well (Rao and Scott 1981, as for PSI).
    """
    if not hours:
        return None
    by_bucket = np.sum([hour.bucket_rows for hour in hours], axis=0).astype(np.float64)
    rows = by_bucket - np.sum([hour.bucket_nulls or [0] * len(by_bucket) for hour in hours], axis=0)
    names = sorted({name for hour in hours for name in hour.categories})
    none = [0] * len(by_bucket)
    counts = {name: np.sum([hour.categories.get(name, none) for hour in hours], axis=0).astype(float) for name in names}
    total = float(rows.sum())
    if total < DEFAULT_POLICY.minimum_rows or not names:
        return None
    found = [clustered(rows, count) for count in counts.values()]
    together = found[0]._replace(variance=np.sum([one.variance for one in found], axis=0))
    effect = float(design_effect(together, np.sum([one.mean * (1 - one.mean) for one in found], axis=0)))
    most = sorted(names, key=lambda name: (-float(counts[name].sum()), name))[:MAX_CATEGORIES]
    return CategoricalBaseline(
        shares={name: float(counts[name].sum()) / total for name in most},
        rows=max(1, round(total / effect)),
        null_ratio=1 - total / float(by_bucket.sum()),
    )


def logged_baseline(scores: Sequence[Sequence[float]], threshold: float | None = None) -> NumericBaseline:
    """Return the baseline of scores that a version gave.

    The rows of one entity are alike, so a log of 40,000 rows knows the mean less well than 40,000 rows of training data
    do. ``rows`` is the number of independent ones that would know it as well.

    Args:
        scores: In groups of entities, each entity in one of them.
        threshold: The score from which on one is a positive, if there is such a thing.

    Raises:
        ValueError: There are too few of them for a comparison.
    """
    groups = [np.array(group, dtype=np.float64) for group in scores if len(group)]
    rows = sum(group.size for group in groups)
    if rows < DEFAULT_POLICY.minimum_rows or len(groups) < DEFAULT_POLICY.minimum_buckets:
        raise ValueError(
            f"{rows:,} scores of entities in {len(groups)} groups; a baseline from the log rests on at least "
            f"{DEFAULT_POLICY.minimum_rows} in {DEFAULT_POLICY.minimum_buckets}"
        )
    tally = NumericTally(threshold, MAX_SCORE)
    for group in groups:
        tally.add(group)
    baseline = tally.baseline()
    assert baseline is not None, "there are rows"
    found = clustered(np.array([float(group.size) for group in groups]), np.array([group.sum() for group in groups]))
    effect = float(design_effect(found, np.array(baseline.standard_deviation**2)))
    return replace(baseline, rows=max(1, round(rows / effect)))
