from understudy.core.drift.baseline import CategoricalBaseline, NumericBaseline
from understudy.core.drift.evidence import Measure
from understudy.core.drift.report import (
    DriftState,
    Move,
    Present,
    Reading,
    drift_terms,
    drift_words,
)

TENURE = NumericBaseline(mean=31.0, standard_deviation=10.0, null_ratio=0.001)
COUNTRY = CategoricalBaseline(shares={"US": 0.61, "BR": 0.04}, null_ratio=0.0)
LESS = "\N{MINUS SIGN}"


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

    assert said == "country: BR 4 % → 19 %, US 61 % → 48 %, PSI 0.27 (limit 0.20), evidence 12,346 (4,000 is enough)."


def test_nulls_are_said_in_points_and_a_rule_without_evidence_without_it():
    reading = Reading(Measure.NULLS, 0.037, 0.02)

    said = drift_words("ltv_90d", TENURE, Present(null_ratio=0.038), reading, DriftState.DRIFT)

    assert said == "ltv_90d: 0.1 % null → 3.8 % null, 3.7 pts (limit 2.0)."


def test_overwhelming_evidence_stays_short():
    reading = Reading(Measure.WASSERSTEIN, 0.9, 0.1, evidence=3.2e300, evidence_needed=8_000)

    said = drift_words("tenure", TENURE, Present(mean=40, shift=0.9), reading, DriftState.DRIFT)

    assert said == "tenure: mean 31 → 40, W1 0.90 (limit 0.10), evidence 3e+300 (8,000 is enough)."


def test_a_mean_in_euros_is_told_in_whole_ones():
    house = NumericBaseline(mean=412_345.2, standard_deviation=150_000.0)

    assert drift_terms(house, Present(mean=398_001.7, shift=-0.1), Measure.MEAN) == ("412,345", "398,002", LESS)
