from hypothesis import given
from hypothesis import strategies as st

from understudy.core.schema.cache_mac import EXPIRY_BYTES, TAG_BYTES, CacheMac, Rejected
from understudy.core.schema.outputs import MAX_CACHED_BYTES

SECRET = b"what-every-proxy-has-and-redis-has-not"
NAME = "infer:12:" + "ab" * 32
NOW = 1_800_000_000.0
MAC = CacheMac(SECRET)
values = st.binary(max_size=300)
names = st.from_regex(r"infer:[0-9]{1,9}:[0-9a-f]{64}", fullmatch=True)


@given(names, values, st.integers(1, 86_400))
def test_what_was_sealed_is_opened_by_a_proxy_with_the_same_secret_until_it_expires(name, value, ttl_seconds):
    sealed = MAC.seal(name, value, NOW + ttl_seconds)

    assert CacheMac(SECRET).open(name, sealed, NOW) == value
    assert CacheMac(SECRET).open(name, sealed, NOW + ttl_seconds) is Rejected.EXPIRED


@given(values, st.data())
def test_a_value_with_any_bit_changed_is_rejected(value, data):
    sealed = bytearray(MAC.seal(NAME, value, NOW + 300))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= data.draw(st.integers(1, 255))

    assert MAC.open(NAME, bytes(sealed), NOW) is Rejected.INVALID_MAC


@given(values, st.data())
def test_a_value_that_was_cut_or_has_more_behind_it_is_rejected(value, data):
    sealed = MAC.seal(NAME, value, NOW + 300)
    cut = sealed[: data.draw(st.integers(0, len(sealed) - 1))]
    longer = sealed + data.draw(st.binary(min_size=1, max_size=9))

    assert MAC.open(NAME, cut, NOW) is MAC.open(NAME, longer, NOW) is Rejected.INVALID_MAC


@given(names, names, values)
def test_a_value_of_another_name_is_rejected(name, other, value):
    opened = MAC.open(other, MAC.seal(name, value, NOW + 300), NOW)

    assert opened == value if name == other else opened is Rejected.INVALID_MAC


@given(st.binary(max_size=400))
def test_whatever_else_is_stored_there_is_rejected_and_raises_nothing(junk):
    assert MAC.open(NAME, junk, NOW) is Rejected.INVALID_MAC


def test_part_of_a_name_cannot_be_taken_for_part_of_the_value():
    sealed = MAC.seal("infer:1", b"23", NOW + 300)
    tag, body = sealed[:TAG_BYTES], sealed[TAG_BYTES:]

    assert MAC.open("infer:1\0" + body[:1].decode(), tag + body[1:], NOW) is Rejected.INVALID_MAC
    assert MAC.open("infer:", tag + b"1" + body, NOW) is Rejected.INVALID_MAC


def test_another_secret_opens_nothing_and_names_its_values_differently():
    other = CacheMac(SECRET[:-1] + b"!")

    assert other.open(NAME, MAC.seal(NAME, b"value", NOW + 300), NOW) is Rejected.INVALID_MAC
    assert other.suffix != MAC.suffix
    assert SECRET.hex()[:8] not in MAC.suffix


def test_the_longest_value_is_opened_and_a_longer_one_is_not_read():
    longest = MAC.seal(NAME, bytes(MAX_CACHED_BYTES), NOW + 300)

    assert MAC.open(NAME, longest, NOW) == bytes(MAX_CACHED_BYTES)
    assert MAC.open(NAME, MAC.seal(NAME, bytes(MAX_CACHED_BYTES + 1), NOW + 300), NOW) is Rejected.INVALID_MAC


def test_the_format_is_the_one_that_proxies_of_this_release_share():
    sealed = CacheMac(bytes(32)).seal("infer:1:a", b'{"score":0.31}', 1_800_000_300)

    assert sealed[TAG_BYTES : TAG_BYTES + EXPIRY_BYTES] == bytes.fromhex("000000006b49d32c")
    assert sealed[:TAG_BYTES].hex() == "280e73a41456e052dede4106665f01e1"
    assert CacheMac(bytes(32)).suffix == ":7b12a3af"
