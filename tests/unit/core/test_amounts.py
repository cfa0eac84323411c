import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.core.amounts import amount_words, says_the_same


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.31849, "0.318"),
        (-0.000012, "-1.2e-05"),
        (999.4, "999"),
        (999.6, "1,000"),
        (412_345.6, "412,346"),
        (-1_234_567.0, "-1,234,567"),
        (3e18, "3e+18"),
    ],
)
def test_an_amount_has_three_digits_or_is_whole(value, words):
    assert amount_words(value) == words


def test_more_digits_are_a_matter_of_the_place():
    assert (amount_words(1_234.5, 4), amount_words(999.96, 4)) == ("1,234", "1,000")


@given(st.floats(-1e14, 1e14))
@example(411_499.7)
@example(999.6)
def test_what_was_told_with_an_exponent_says_the_same(value):
    before, now = (
        f"its mean score is {amount}, the champion's 0.1 of 12,345 calls"
        for amount in (f"{value:.3g}", amount_words(value))
    )

    assert says_the_same(now, before)


@pytest.mark.parametrize(
    ("now", "before"),
    [
        ("412,345 euros", "4.13e+05 euros"),
        ("412,345 euros", "4.12e+05 dollars"),
        ("412,345 euros", "412,346 euros"),
        ("412,345 euros", "412345 euros"),
        ("0.412 euros", "4.12e-01 euros"),
        ("412,345 euros, 3 calls", "4.12e+05 euros, 4 calls"),
        ("412,345 euros", "None"),
    ],
)
def test_other_amounts_and_other_words_do_not(now, before):
    assert not says_the_same(now, before)
