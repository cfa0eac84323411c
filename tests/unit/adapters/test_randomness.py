from itertools import islice

from understudy.adapters.randomness import random_hex, random_numbers


def test_no_number_is_given_twice_across_blocks():
    drawn = list(islice(random_numbers(128), 2_000))

    assert len(set(drawn)) == 2_000


def test_numbers_fill_their_range_and_no_more():
    drawn = list(islice(random_numbers(74), 1_000))

    assert all(0 <= number < 2**74 for number in drawn)
    assert max(drawn) >= 2**73 > min(drawn)


def test_hex_has_two_digits_a_byte_and_none_is_given_twice():
    texts = list(islice(random_hex(16), 2_000))

    assert {len(bytes.fromhex(text)) for text in texts} == {16}
    assert len(set(texts)) == 2_000
