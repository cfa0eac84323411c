import numpy as np
import pytest

from understudy.core.prediction_log.text_hash import text_hashes

# SELECT hashtextextended(text, seed) of Postgres 17.
KNOWN = [
    ("", 0, -6939563903564495251),
    ("a", 0, 3591986179850072241),
    ("abcd", 0, -1038429303365892052),
    ("elevenchars", 0, -6925668286554892175),
    ("twelve chars", 0, 3775680797941944007),
    ("thirteen char", 20, 3870205831002590296),
    ("é ü", 20, 8368370671568449143),
    ("customer-42", 20, -1844276367548517926),
    ("0199a1b2-0000-7000-8000-0000000000ff", 2**40 + 3, 3776852467711508951),
]


def hashes(texts: list[str], seed: int) -> list[int]:
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    hashes: list[int] = text_hashes(np.frombuffer(b"".join(encoded), np.uint8), offsets, seed).tolist()
    return hashes


@pytest.mark.parametrize(("text", "seed", "expected"), KNOWN)
def test_a_hash_is_that_of_postgres(text, seed, expected):
    assert hashes([text], seed) == [expected]


def test_texts_of_all_lengths_are_hashed_together():
    texts = [text for text, seed, _ in KNOWN if seed == 20]

    assert hashes(texts, 20) == [expected for _, seed, expected in KNOWN if seed == 20]
    assert hashes([], 20) == []
