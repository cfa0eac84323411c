import pytest

from understudy.core.amounts import amount_words


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
