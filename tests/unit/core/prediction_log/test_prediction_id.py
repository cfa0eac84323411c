from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from understudy.core.prediction_log.prediction_id import (
    RANDOM_BITS,
    RANDOM_BYTES,
    id_seconds,
    prediction_id,
    prediction_ids,
)

MILLISECONDS = st.integers(0, 2**48 - 1)
BITS = st.integers(0, 2**RANDOM_BITS - 1)


@given(MILLISECONDS, BITS)
@example(2**48 - 1, 2**RANDOM_BITS - 1)
@example(0, 0)
def test_an_id_is_a_uuid_of_version_7_with_the_time_and_all_random_bits(unix_ms, bits):
    made = UUID(prediction_id(unix_ms, bits))

    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert made.int >> 80 == unix_ms
    assert (made.int >> 64 & 0xFFF) << 62 | made.int & (2**62 - 1) == bits


@given(MILLISECONDS, st.lists(st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES), max_size=20))
def test_ids_that_are_made_together_have_all_bits_that_an_id_takes_of_its_bytes(unix_ms, several):
    made = [UUID(text) for text in prediction_ids(unix_ms, b"".join(several))]

    drawn = [int.from_bytes(one) for one in several]
    assert [(one.version, one.variant, one.int >> 80) for one in made] == [
        (7, "specified in RFC 4122", unix_ms) for _ in several
    ]
    assert [(one.int >> 64 & 0xFFF, one.int & (2**62 - 1)) for one in made] == [
        (bits >> 64 & 0xFFF, bits & (2**62 - 1)) for bits in drawn
    ]


@given(MILLISECONDS, BITS)
def test_an_id_tells_when_it_was_made_and_what_is_none_tells_nothing(unix_ms, bits):
    made = prediction_id(unix_ms, bits)

    assert id_seconds(made) == id_seconds(made.upper()) == unix_ms / 1_000
    assert id_seconds(f"{made[:14]}4{made[15:]}") is None
    assert (id_seconds(made[1:]), id_seconds(f"{made} "), id_seconds("customer-42")) == (None, None, None)
