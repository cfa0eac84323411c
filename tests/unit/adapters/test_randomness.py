from itertools import islice

from understudy.adapters.randomness import random_hex


def test_hex_has_two_digits_a_byte_and_none_is_given_twice():
    texts = list(islice(random_hex(16), 2_000))

    assert {len(bytes.fromhex(text)) for text in texts} == {16}
    assert len(set(texts)) == 2_000
