from understudy.adapters.randomness import RandomBytes


def test_no_byte_is_given_twice_across_pieces():
    source = RandomBytes()

    taken = [source.take(16) for _ in range(1_000)]

    assert all(len(one) == 16 for one in taken)
    assert len(set(taken)) == 1_000


def test_bits_fill_their_range_and_no_more():
    source = RandomBytes()

    drawn = [source.bits(74) for _ in range(500)]

    assert all(0 <= number < 2**74 for number in drawn)
    assert max(drawn) >= 2**73 > min(drawn)


def test_hex_has_two_digits_a_byte():
    text = RandomBytes().hex(16)

    assert len(text) == 32
    assert bytes.fromhex(text)
