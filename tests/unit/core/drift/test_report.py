import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.drift.baseline import CategoricalBaseline, NumericBaseline
from understudy.core.drift.evidence import Measure
from understudy.core.drift.report import (
    Drift,
    DriftState,
    Move,
    Present,
    Reading,
    drift_terms,
    drift_words,
    no_baseline_drift,
    same_drift_everywhere,
    too_early_drift,
)

TENURE = NumericBaseline(mean=31.0, standard_deviation=10.0, null_ratio=0.001)
COUNTRY = CategoricalBaseline(shares={"US": 0.61, "BR": 0.04}, null_ratio=0.0)
LESS = "\N{MINUS SIGN}"


def a_drift(
    distance: float = 0.3,
    direction: str = "+",
    state: DriftState = DriftState.DRIFT,
    measure: Measure = Measure.MEAN,
) -> Drift:
    readings = tuple(Reading(other, distance, 0.1) for other in (Measure.MEAN, Measure.WASSERSTEIN))
    shown = next(reading for reading in readings if reading.measure is measure)
    return Drift("tenure", state, "", shown=shown, readings=readings, direction=direction)


def test_the_same_drift_in_every_version_is_the_inputs():
    said = same_drift_everywhere(
        {"7": a_drift(0.3), "8": a_drift(0.25, measure=Measure.WASSERSTEIN), "9": a_drift(0.5)}
    )

    assert said == "Same drift in v7, v8 and v9: the input moved, not the model."


@pytest.mark.parametrize(
    "drifts",
    [
        {},
        {"7": a_drift()},
        {"7": a_drift(), "8": a_drift(state=DriftState.OK)},
        {"7": a_drift(), "8": a_drift(direction=LESS)},
        {"7": a_drift(0.3), "8": a_drift(0.7)},
        {"7": a_drift(), "8": no_baseline_drift("tenure")},
        {"7": no_baseline_drift("tenure"), "8": too_early_drift("tenure", 3, "")},
    ],
)
def test_one_version_that_is_different_or_alone_says_nothing_about_the_input(drifts):
    assert same_drift_everywhere(drifts) == ""


def test_a_version_that_cannot_be_judged_yet_is_left_out():
    said = same_drift_everywhere({"7": a_drift(), "8": a_drift(), "9": too_early_drift("tenure", 3, "")})

    assert said == "Same drift in v7 and v8: the input moved, not the model."


@given(st.permutations(["6", "7", "8"]), st.tuples(*[st.floats(0.1, 1)] * 3))
def test_the_order_of_the_versions_decides_nothing(order, distances):
    drifts = {version: a_drift(distance) for version, distance in zip(("6", "7", "8"), distances, strict=True)}

    in_order = same_drift_everywhere(drifts)
    permuted = same_drift_everywhere({version: drifts[version] for version in order})

    assert bool(in_order) == bool(permuted) == (max(distances) <= 2 * min(distances))


def test_each_measure_is_told_in_its_own_terms():
    numbers = Present(mean=27.5, shift=-0.35, null_ratio=0.038)
    shares = Present(moves=(Move("BR", 0.04, 0.19), Move("US", 0.61, 0.48)))

    assert drift_terms(TENURE, numbers, Measure.MEAN) == ("31", "27.5", LESS)
    assert drift_terms(TENURE, numbers, Measure.NULLS) == ("0.1 % null", "3.8 % null", "+")
    assert drift_terms(COUNTRY, shares, Measure.PSI) == ("4 % BR", "19 % BR", "+BR")
    assert drift_terms(TENURE, numbers._replace(shift=0.01), Measure.PSI)[2] == ""


def test_a_drift_is_said_with_what_changed_how_far_and_how_well_it_is_shown():
    shares = Present(moves=(Move("BR", 0.04, 0.19), Move("US", 0.61, 0.48), Move("others", 0.35, 0.33)))
    reading = Reading(Measure.PSI, 0.27, 0.2, evidence=12_345.6, evidence_needed=4_000)

    said = drift_words("country", COUNTRY, shares, reading, DriftState.DRIFT)

    assert said == "country: BR 4 % → 19 %, US 61 % → 48 %, PSI 0.27 (limit 0.20), evidence 12,346 of 4,000 needed."


def test_nulls_are_said_in_points_and_a_rule_without_evidence_without_it():
    reading = Reading(Measure.NULLS, 0.037, 0.02)

    said = drift_words("ltv_90d", TENURE, Present(null_ratio=0.038), reading, DriftState.DRIFT)

    assert said == "ltv_90d: 0.1 % null → 3.8 % null, 3.7 pts (limit 2.0)."


def test_overwhelming_evidence_stays_short():
    reading = Reading(Measure.WASSERSTEIN, 0.9, 0.1, evidence=3.2e300, evidence_needed=8_000)

    said = drift_words("tenure", TENURE, Present(mean=40, shift=0.9), reading, DriftState.DRIFT)

    assert said == "tenure: mean 31 → 40, W1 0.90 (limit 0.10), evidence 3e+300 of 8,000 needed."
