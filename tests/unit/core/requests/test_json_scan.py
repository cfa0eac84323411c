import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.requests.json_scan import Problem, count_colons, count_containers, find_problem

DEPTH = 3
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|-?\d[\d.eE+-]*|true|false|null')
NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

texts = st.text(st.sampled_from('a:",[]{}\\é\n-1e0'), max_size=5) | st.sampled_from(["\0", "u0000", "\\u0000", "\\\0"])
integers = st.sampled_from(
    [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, -(2**64), 10**19, 10**40, -(10**18)]
)
numbers = (
    integers.map(str)
    | integers.map("{}.5".format)
    | integers.map("{}e0".format)
    | integers.map("0.{}".format)
    | st.sampled_from(["0.1111111111111111111111", "1e-0000000000000000000000099", "1E+00000000000000000000", "-0.0"])
)
numbers = numbers.map(lambda text: text.replace("0.-", "-0."))
scalars = numbers | texts.map(lambda text: orjson.dumps(text).decode()) | st.sampled_from(["true", "null"])
blanks = st.sampled_from(["", " ", "\n", "\t "])


@st.composite
def objects(draw, members):
    names = st.sampled_from(['"a"', '"b"', '"\\u0061"', '""', '":"', '"\\""', '"\\\\"', '"é"'])
    pairs = draw(st.lists(st.tuples(names, blanks, members), max_size=4))
    return "{" + ",".join(f"{blank}{name}{blank}:{member}" for name, blank, member in pairs) + "}"


@st.composite
def arrays(draw, members):
    return "[" + ",".join(draw(st.lists(members, max_size=3))) + draw(blanks) + "]"


documents = st.recursive(scalars, lambda members: objects(members) | arrays(members), max_leaves=12)


def first_problem(body: bytes) -> Problem | None:
    """Look at one token after the other."""
    open_keys: list[set[str] | None] = []
    tokens = [(match.group(), match.start()) for match in TOKEN.finditer(body)]
    for (token, position), (after, _) in zip(tokens, [*tokens[1:], (b"", 0)], strict=True):
        if token in b"{[":
            open_keys.append(set() if token == b"{" else None)
            if len(open_keys) > DEPTH:
                return Problem(position, f"nested deeper than {DEPTH} levels")
        elif token in b"}]":
            open_keys.pop()
        elif token[:1] == b'"':
            if NUL.search(token):
                return Problem(position, "U+0000 is not allowed in a string")
            keys = open_keys[-1] if after == b":" else None
            if keys is not None:
                if (key := orjson.loads(token)) in keys:
                    return Problem(position, "the key is repeated in one object")
                keys.add(key)
        elif re.fullmatch(rb"-?\d+", token) and not -(2**63) <= int(token) < 2**64:
            return Problem(position, "an integer has more than 64 bits")
    return None


@given(documents)
def test_arithmetic_on_all_bytes_finds_what_a_loop_over_tokens_finds(document):
    body = document.encode()

    assert find_problem(body, DEPTH) == first_problem(body)


@given(documents)
def test_colons_and_brackets_in_strings_are_not_counted(document):
    tokens = TOKEN.findall(document.encode())

    assert count_colons(document.encode()) == tokens.count(b":")
    assert count_containers(document.encode(), 0) == tokens.count(b"{") + tokens.count(b"[")


@given(st.binary(max_size=60) | documents.map(lambda text: text[: len(text) // 2].encode()))
def test_bytes_that_are_no_json_make_nothing_fail(body):
    count_containers(body, 0)
    count_colons(body)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (b'{"a":[18446744073709551616]}', 6),
        (b"[-9223372036854775809]", 1),
        (b"18446744073709551616", 0),
        (b"-9223372036854775809", 0),
        (b"[1,\n 99999999999999999999999999]", 5),
    ],
)
def test_an_integer_of_more_than_64_bits_is_found_where_it_begins(text, position):
    assert find_problem(text, DEPTH) == Problem(position, "an integer has more than 64 bits")


@pytest.mark.parametrize("text", [b"18446744073709551615", b"-9223372036854775808", b"1.8446744073709551616", b"1e19"])
def test_what_fits_and_what_is_no_integer_is_no_problem(text):
    assert find_problem(text, DEPTH) is None
