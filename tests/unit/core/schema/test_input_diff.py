from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from understudy.core.schema.compile import compile_input_schema
from understudy.core.schema.input_diff import (
    MAX_NAMED,
    NO_DIFFERENCES,
    InputDifferences,
    Names,
    differences_of,
    input_differences,
)
from understudy.errors import InputInvalid, SchemaInvalid

AGE = {"name": "age", "dtype": "float32"}
STORED = {"name": "embedding", "dtype": "float32", "source": "store"}
PLAN = {"name": "plan", "dtype": "string", "enum": ["free", "pro"]}


def schema(*features: dict[str, Any]) -> dict[str, Any]:
    return {"features": list(features)}


def named(found: tuple[str, ...]) -> list[str]:
    return [words.partition(":")[0] for words in found]


@pytest.mark.parametrize(
    "version",
    [
        schema(AGE, PLAN),
        schema(PLAN, AGE),
        schema(AGE, PLAN, {"name": "tenure", "dtype": "int64", "default": 0}),
        schema(AGE, PLAN, {"name": "tenure", "dtype": "int64", "default": 0, "source": "store"}),
        schema({**AGE, "dtype": "float64", "default": 3}, PLAN),
        schema({**AGE, "shape": [1]}, PLAN),
        schema(AGE, {**PLAN, "enum": ["free", "pro", "team"]}),
        schema(AGE, {"name": "plan", "dtype": "string"}),
    ],
    ids=str,
)
def test_a_version_that_takes_whatever_the_champion_takes_differs_in_nothing(version):
    assert input_differences(schema(AGE, PLAN), version) == NO_DIFFERENCES


@pytest.mark.parametrize(
    ("version", "breaking"),
    [
        (schema(AGE, PLAN, {"name": "tenure", "dtype": "int64"}), "tenure"),
        (schema(AGE), "plan"),
        (schema({**AGE, "shape": [3]}, PLAN), "age"),
        (schema({**AGE, "dtype": "string"}, PLAN), "age"),
        (schema({**AGE, "dtype": "bool"}, PLAN), "age"),
    ],
    ids=str,
)
def test_what_fails_every_call_of_the_champions_callers_is_named(version, breaking):
    found = input_differences(schema(AGE, PLAN), version)

    assert named(found.breaking) == [breaking]
    assert found.possible == ()


@pytest.mark.parametrize(
    ("champion", "version", "possible"),
    [
        (schema(AGE), schema(AGE, {"name": "tenure", "dtype": "int64", "source": "store"}), "tenure"),
        (schema(AGE, {"name": "tenure", "dtype": "int64", "default": 0}), schema(AGE), "tenure"),
        (schema({**AGE, "default": 3}), schema(AGE), "age"),
        (schema(AGE), schema({**AGE, "dtype": "int64"}), "age"),
        (schema(AGE), schema({**AGE, "min": 0}), "age"),
        (schema({**AGE, "max": 99}), schema({**AGE, "max": 98}), "age"),
        (schema({**AGE, "enum": [1, 2]}), schema({**AGE, "max": 1}), "age"),
        (schema(PLAN), schema({**PLAN, "enum": ["free"]}), "plan"),
        (schema({"name": "plan", "dtype": "string"}), schema(PLAN), "plan"),
        (schema(AGE, PLAN), schema({**AGE, "per": "treatment"}, PLAN), "age"),
        (schema({**AGE, "shape": [1]}), schema(AGE), "age"),
        (schema({**STORED, "shape": [64]}), schema({**STORED, "shape": [128]}), "embedding"),
        (
            schema(AGE, {**PLAN, "enum": ["free"], "default": "free"}),
            schema(AGE, {"name": "plan", "dtype": "int64", "default": 0}),
            "plan",
        ),
        (schema({**AGE, "dtype": "int64"}), schema({**AGE, "dtype": "int8"}), "age"),
    ],
    ids=str,
)
def test_what_fails_some_calls_is_named_apart(champion, version, possible):
    found = input_differences(champion, version)

    assert found.breaking == ()
    assert named(found.possible) == [possible]


VALUES: dict[str, Any] = {"float32": 1.5, "int8": 3, "int64": 300, "string": "x", "bool": True}


@st.composite
def features(draw: st.DrawFn, name: str) -> dict[str, Any]:
    dtype = draw(st.sampled_from(list(VALUES)))
    length = draw(st.sampled_from([None, 1, 2]))
    found: dict[str, Any] = {"name": name, "dtype": dtype}
    if length is not None:
        found["shape"] = [length]
    if draw(st.booleans()):
        found["default"] = VALUES[dtype] if length is None else [VALUES[dtype]] * length
    more: dict[str, Any] = draw(st.sampled_from([{}, {}, {"source": "store"}, {"per": "treatment"}]))
    return found | more


schemas = st.sets(st.sampled_from("abc"), min_size=1).flatmap(
    lambda names: st.tuples(*(features(name) for name in sorted(names))).map(lambda some: schema(*some))
)
values = st.sampled_from([*VALUES.values(), 3.0, [3], [1.5], [1, 2], ["x"], ["x", "y"], [True]])
calls = st.dictionaries(st.sampled_from("abc"), values)


def fits(version: dict[str, Any], inputs: dict[str, Any], stored: dict[str, Any] | None) -> bool:
    try:
        compiled = compile_input_schema(version)
        # A store is asked for what the version reads from it, and for nothing else.
        names = {feature.name for feature in compiled.features if feature.stored}
        read = {name: value for name, value in (stored or {}).items() if name in names}
        compiled.assemble(inputs, read)
    except SchemaInvalid:
        assume(False)
    except InputInvalid:
        return False
    return True


@given(champion=schemas, version=schemas, asked=st.lists(calls, min_size=1, max_size=20), stored=calls)
def test_no_version_is_called_breaking_that_takes_a_call_of_the_champions(champion, version, asked, stored):
    both = [call for call in ({}, *asked) if fits(champion, call, stored) and fits(version, call, stored)]

    if both:
        assert input_differences(champion, version).breaking == (), both[0]


def test_a_schema_that_cannot_be_compiled_is_not_compared():
    assert input_differences({}, schema(AGE)) == NO_DIFFERENCES
    assert input_differences(schema(AGE), {"features": []}) == NO_DIFFERENCES


def test_the_words_are_about_the_champion_unless_the_two_have_names_of_their_own():
    champion, version = schema(AGE, {"name": "tenure", "dtype": "int64"}), schema({**AGE, "min": 0}, PLAN)
    names = Names("version 7", "version 8")

    champions = input_differences(champion, version)
    named = differences_of(compile_input_schema(champion), compile_input_schema(version), names)

    said = [line for line in champions.lines() if "champion" in line or "the version" in line]
    assert said == champions.lines()
    assert named.lines() == [
        line.replace("the champion", "version 7").replace("the version", "version 8") for line in said
    ]


def test_what_breaks_is_named_first_and_no_text_grows_without_bound():
    many = InputDifferences(("a: new", "b: new"), tuple(f"c{number}: optional" for number in range(20)))

    lines = many.lines()

    assert lines[:3] == ["a: new", "b: new", "c0: optional"]
    assert (len(lines), lines[-1]) == (MAX_NAMED + 1, "and 12 more")
