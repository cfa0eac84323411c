import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.drift.evidence import Measure
from understudy.core.drift.hours import HOUR_SECONDS, class_hour
from understudy.core.drift.report import Drift, DriftState, Reading, no_baseline_drift, too_early_drift
from understudy.core.drift.subject_window import CLASSES, input_subject
from understudy.core.drift.version_drift import judge_version, same_drift_everywhere

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


def test_classes_are_judged_by_their_shares_and_an_input_of_that_name_is_another_subject():
    baseline = {"kind": "categorical", "n": 40_000, "shares": {"pro": 0.5, "basic": 0.5}}
    metrics = {"baseline": {"classes": baseline, "inputs": {"class": baseline}}}
    answered = [(f"user-{number}", "pro" if number % 20 < 11 else "basic") for number in range(12_000)]
    hours = {CLASSES: [class_hour(hour * HOUR_SECONDS, answered) for hour in range(6)]}

    drifts = {drift.subject: drift for drift in judge_version(metrics, hours, 6 * HOUR_SECONDS)}

    assert set(drifts) == {"prediction", CLASSES, input_subject("class")}
    assert drifts[CLASSES].state is DriftState.DRIFT
    assert [reading.measure for reading in drifts[CLASSES].readings] == [Measure.SHARES]
    assert drifts[input_subject("class")].state is DriftState.TOO_EARLY
