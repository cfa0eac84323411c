from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from builders import a_version_row, an_input_schema, policy_rows
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.routing.policy import PolicySnapshot, Role
from understudy.core.routing.policy_document import Compiling, apply_document, version_from_row
from understudy.core.schema.compile import compile_input_schema, compile_output_schema
from understudy.errors import SchemaInvalid

EMPTY = PolicySnapshot()
KEY = {"id": "k1", "sha256": "ab" * 32, "scopes": ["predict"]}
FULL_INPUT: dict[str, Any] = {
    "features": [
        {"name": "a", "dtype": "float32", "shape": [2], "default": [1, 2], "min": 0, "max": 3},
        {"name": "b", "dtype": "string", "enum": ["x", "y"], "default": "x", "source": "store"},
        {"name": "c", "dtype": "int8", "enum": [1]},
    ],
    "tensors": [
        {"name": "t", "features": ["a", "c"], "dtype": "float32", "shape": [3]},
        {"name": "s", "features": ["b"]},
    ],
    "batch": True,
}
FULL_OUTPUT: dict[str, Any] = {
    "tensor": "p",
    "dtype": "float32",
    "shape": [2],
    "score_index": 1,
    "activation": "none",
    "min": 0,
    "max": 1,
    "labels": ["no", "yes"],
}
Place = tuple[str | int, ...]


def places(document: Any, here: Place = ()) -> Iterator[Place]:
    """Yield where each value of a document is."""
    yield here
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for step, value in inside:
        yield from places(value, (*here, step))


def replaced(document: Any, place: Place, value: Any) -> Any:
    """Return the document with another value at this place."""
    if not place:
        return value
    changed = target = deepcopy(document)
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    return changed


def nested(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def after(snapshot: PolicySnapshot, *, complete: bool = True, **models) -> PolicySnapshot:
    return apply_document(snapshot, {"models": models, "keys": []}, complete=complete)


def test_a_document_becomes_a_policy_with_its_versions():
    snapshot = after(
        EMPTY, visits=policy_rows(challenger_version=2, challenger_weight=5, category_roles={"vip": "champion"})
    )

    policy = snapshot.policies["visits"]
    assert policy.champion.version == "1"
    assert policy.challenger is not None
    assert (policy.challenger.version, policy.challenger_weight) == ("2", 5)
    assert policy.category_roles == {"vip": Role.CHAMPION}
    assert set(policy.versions) == {"1", "2", "3"}


def test_the_share_of_logged_inputs_is_read_and_is_nothing_in_a_document_of_an_earlier_version():
    rows = policy_rows(input_sample_percent=5)
    before = policy_rows()
    assert "input_sample_percent" not in before["policy"]

    read, missing = (
        apply_document(PolicySnapshot(), {"models": {"visits": one}}, complete=True).policies["visits"]
        for one in (rows, before)
    )

    assert (read.input_sample_percent, missing.input_sample_percent) == (5, 0)


def test_a_snapshot_knows_which_rollouts_policies_have():
    def of_rollout(rollout_id: int | None) -> dict[str, Any]:
        one = policy_rows()
        one["policy"]["rollout_id"] = rollout_id
        return one

    snapshot = after(EMPTY, visits=of_rollout(7), churn=of_rollout(9), fraud=of_rollout(None))

    assert snapshot.rollout_ids() == {7, 9}


@pytest.mark.parametrize(
    ("rollout_id", "changes", "is_alone"),
    [
        (7, {}, True),
        (7, {"challenger_version": 2}, True),
        (7, {"challenger_version": 2, "challenger_weight": 10}, False),
        (7, {"generation": 4}, False),
        (8, {}, False),
    ],
)
def test_a_snapshot_knows_whether_a_rollouts_champion_is_alone_at_a_generation(rollout_id, changes, is_alone):
    snapshot = after(EMPTY, visits=policy_rows(**{"rollout_id": 7, "generation": 3} | changes))

    assert snapshot.has_champion_alone(rollout_id, 3) is is_alone
    assert not snapshot.has_champion_alone(0, 3)


def test_an_unchanged_version_is_not_compiled_again():
    first = after(EMPTY, visits=policy_rows())
    second = after(first, visits=policy_rows(generation=2, champion_version=2))

    assert second.policies["visits"].versions["1"] is first.policies["visits"].versions["1"]


def test_a_version_with_other_endpoints_is_another_value():
    first = after(EMPTY, visits=policy_rows())
    moved = [a_version_row("1", endpoints=["127.0.0.1:9001"])]
    second = after(first, visits=policy_rows(versions=moved))

    assert second.policies["visits"].champion.endpoints == ("127.0.0.1:9001",)


def test_versions_whose_input_schemas_are_alike_to_the_letter_have_the_same_one():
    rows = policy_rows()
    first, second = rows["versions"][:2]
    second["input_schema"] = {**first["input_schema"]}

    alike = after(EMPTY, visits=rows).policies["visits"].versions
    second["input_schema"] = {**first["input_schema"], "batch": False}
    unlike = after(EMPTY, visits=rows).policies["visits"].versions

    assert alike[first["version"]].input_schema is alike[second["version"]].input_schema
    assert unlike[first["version"]].input_schema.batch
    assert not unlike[second["version"]].input_schema.batch


def test_each_model_is_asked_for_its_rows_when_its_turn_comes():
    models = {"churn": policy_rows(), "fraud": policy_rows()}
    compiling = Compiling(EMPTY, {"models": models, "keys": []}, complete=True)
    steps = compiling.each_model()

    assert next(steps) == "churn"
    models["fraud"] = policy_rows(generation=7)
    assert list(steps) == ["fraud"]

    assert {name: policy.generation for name, policy in compiling.snapshot().policies.items()} == {
        "churn": 1,
        "fraud": 7,
    }


def test_a_change_of_roles_keeps_the_versions_and_tells_their_new_status():
    first = after(EMPTY, visits=policy_rows(versions=[a_version_row("1", status="champion"), a_version_row("2")]))
    swapped = [a_version_row("1", status="staging"), a_version_row("2", status="champion")]
    second = after(first, visits=policy_rows(generation=2, champion_version=2, versions=swapped))

    before, now = first.policies["visits"], second.policies["visits"]
    assert all(now.versions[label] is before.versions[label] for label in ("1", "2"))
    assert before.statuses == {"1": "champion", "2": "staging"}
    assert now.statuses == {"1": "staging", "2": "champion"}


def test_an_older_state_of_the_database_is_what_counts_after_a_restore():
    newer = after(EMPTY, visits=policy_rows(generation=41, champion_version=2))
    restored = after(newer, visits=policy_rows(generation=11, champion_version=1), complete=False)

    policy = restored.policies["visits"]
    assert (policy.generation, policy.champion.version) == (11, "1")
    assert restored.rejected == {}


def test_rows_that_cannot_be_used_leave_the_last_good_policy_and_are_named():
    good = after(EMPTY, visits=policy_rows())
    unusable: list[dict[str, Any]] = [
        policy_rows(generation=2, versions=[a_version_row("1", input_schema={"features": []})]),
        policy_rows(generation=2, champion_version=99),
        policy_rows(generation=2, champion_version=None),
        policy_rows(generation=2, challenger_weight="many"),
        # The database refuses these, unless somebody has taken its guards away.
        policy_rows(generation=2, challenger_version=2, challenger_weight=150),
        policy_rows(generation=2, challenger_version=2, challenger_weight=-1),
        policy_rows(generation=2, challenger_version=2, challenger_weight=None),
        policy_rows(generation=2, shadow_version=3, shadow_percent=101),
        policy_rows(generation=2, challenger_version=1, challenger_weight=10),
        {"policy": {}, "versions": []},
    ]
    for broken in unusable:
        snapshot = after(good, visits=broken)

        assert snapshot.policies["visits"] is good.policies["visits"]
        assert "visits" in snapshot.rejected


def test_a_weight_without_a_challenger_is_nobodys_and_is_named():
    snapshot = after(EMPTY, visits=policy_rows(challenger_weight=20))

    assert snapshot.policies["visits"].challenger_weight == 0
    assert "no challenger" in snapshot.rejected["visits"]


BROKEN: list[Any] = [
    {},
    an_input_schema(tensors=[{"name": "t", "features": 5}]),
    an_input_schema(tensors=[{"name": "t", "features": [["age"]]}]),
    an_input_schema(features=[{"name": "age", "dtype": "string", "enum": ["a", ["b"]]}]),
    nested(1_000, []),
]


@pytest.mark.parametrize("schema", BROKEN, ids=["empty", "number", "list", "enum", "deep"])
def test_a_version_that_nobody_routes_to_may_be_broken(schema):
    good = after(EMPTY, visits=policy_rows(challenger_version=2, challenger_weight=50))
    versions = [a_version_row("1"), a_version_row("2"), a_version_row("3", input_schema=schema)]
    snapshot = after(good, visits=policy_rows(challenger_version=2, challenger_weight=0, versions=versions))

    policy = snapshot.policies["visits"]
    assert set(policy.versions) == {"1", "2"}
    assert policy.challenger_weight == 0
    assert snapshot.rejected == {}


@pytest.mark.parametrize("role", ["challenger", "shadow"])
@pytest.mark.parametrize("base", ["fresh", "running"])
def test_a_challenger_or_shadow_that_cannot_be_used_is_nobody_and_is_named(role, base):
    good = after(EMPTY, visits=policy_rows(challenger_version=3, challenger_weight=50))
    versions = [a_version_row("1"), a_version_row("2", input_schema={"features": []}), a_version_row("3")]
    rows = policy_rows(**{f"{role}_version": 2}, challenger_weight=20, generation=2, versions=versions)
    snapshot = after(EMPTY if base == "fresh" else good, visits=rows)

    policy = snapshot.policies["visits"]
    assert (policy.champion.version, policy.challenger, policy.challenger_weight) == ("1", None, 0)
    assert (policy.shadow, policy.generation) == (None, 2)
    assert role in snapshot.rejected["visits"]
    assert "input_schema.features" in snapshot.rejected["visits"]


def test_without_a_usable_champion_weight_0_is_all_that_changes_of_the_last_good_policy():
    good = after(EMPTY, visits=policy_rows(challenger_version=2, challenger_weight=50))
    versions = [a_version_row("1", input_schema={}), a_version_row("2")]
    at_weight = {
        weight: after(good, visits=policy_rows(challenger_version=2, challenger_weight=weight, versions=versions))
        for weight in (0, 80)
    }

    kept = {weight: snapshot.policies["visits"] for weight, snapshot in at_weight.items()}
    assert kept[80] is good.policies["visits"]
    assert kept[0].challenger_weight == 0
    assert (kept[0].champion, kept[0].challenger) == (kept[80].champion, kept[80].challenger)
    assert all("champion" in snapshot.rejected["visits"] for snapshot in at_weight.values())


def test_a_champion_whose_protocol_this_release_does_not_speak_leaves_the_last_good_policy():
    good = after(EMPTY, visits=policy_rows())
    newer = policy_rows(generation=2, champion_version=2, versions=[a_version_row("2", protocol="quic")])
    compiling = Compiling(good, {"models": {"visits": newer}}, complete=False, protocols={"oip"})

    list(compiling.each_model())

    snapshot = compiling.snapshot()
    assert snapshot.policies["visits"] is good.policies["visits"]
    assert snapshot.rejected["visits"] == "the champion: this release speaks no protocol 'quic' to model servers"


def an_arm(version_id: Any, first: Any = 90, last: Any = 99) -> dict[str, Any]:
    return {"version_id": version_id, "first": first, "last": last}


def test_further_arms_become_who_has_which_bucket():
    rows = policy_rows(challenger_version=2, challenger_weight=50, arms=[an_arm(3), an_arm(3, 60, 60)])

    policy = after(EMPTY, visits=rows).policies["visits"]

    assert policy.arms == dict.fromkeys([*range(90, 100), 60], policy.versions["3"])
    assert policy.arm_percents == {policy.versions["3"]: 11}
    assert after(EMPTY, visits=policy_rows()).policies["visits"].arms == {}


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        ([an_arm(9)], "the arm is version id 9, which is not one of the model's versions"),
        ([an_arm(None)], "an arm has no version"),
        ([an_arm(3, "x")], "the arms cannot be read"),
        ([{}], "the arms cannot be read"),
        (9, "the arms cannot be read"),
    ],
)
def test_the_buckets_of_an_arm_that_cannot_be_used_are_the_champions(arms, said):
    snapshot = after(EMPTY, visits=policy_rows(challenger_version=2, challenger_weight=50, arms=arms))

    assert snapshot.policies["visits"].arms == {}
    assert snapshot.policies["visits"].challenger_weight == 50
    assert said in snapshot.rejected["visits"]


def test_a_broken_arm_takes_no_other_with_it():
    versions = [a_version_row("1"), a_version_row("2", input_schema={"features": []}), a_version_row("3")]
    snapshot = after(EMPTY, visits=policy_rows(arms=[an_arm(2, 80, 89), an_arm(3, 0, 10**9)], versions=versions))

    policy = snapshot.policies["visits"]
    assert policy.arms == dict.fromkeys(range(100), policy.versions["3"])
    assert "the arm: input_schema.features" in snapshot.rejected["visits"]


def test_without_a_usable_champion_the_end_of_all_further_arms_is_kept_too():
    good = after(EMPTY, visits=policy_rows(arms=[an_arm(3)]))
    versions = [a_version_row("1", input_schema={}), a_version_row("3")]

    ended = after(good, visits=policy_rows(arms=[], versions=versions))
    grown = after(good, visits=policy_rows(arms=[an_arm(3, 50)], versions=versions))

    assert ended.policies["visits"].arms == {}
    assert grown.policies["visits"] is good.policies["visits"]


def test_a_corrected_champion_ends_the_rejection():
    broken = after(EMPTY, visits=policy_rows(versions=[a_version_row("1", input_schema={})]))
    mended = after(broken, complete=False, visits=policy_rows())

    assert broken.policies == {}
    assert mended.policies["visits"].champion.version == "1"
    assert mended.rejected == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_whatever_one_place_of_a_document_holds_the_other_models_and_keys_are_read(data):
    good = after(EMPTY, visits=policy_rows(challenger_version=2, challenger_weight=50))
    versions = [a_version_row("1"), a_version_row("2", input_schema=FULL_INPUT, output_schema=FULL_OUTPUT)]
    document = {
        "models": {
            "visits": policy_rows(
                challenger_version=2,
                shadow_version=1,
                versions=versions,
                arms=[{"version_id": 2, "first": 90, "last": 99}],
            )
        },
        "keys": [KEY],
    }
    place = data.draw(st.sampled_from([place for place in places(document) if len(place) > 1]))
    broken = replaced(document, place, data.draw(JSON))
    broken["models"]["digits"] = policy_rows()

    snapshot = apply_document(good, broken, complete=False)

    assert snapshot.policies["digits"].champion.version == "1"
    assert snapshot.policies.keys() <= {"visits", "digits"}
    assert snapshot.keys.keys() == {"k1"} or place[0] == "keys"


@pytest.mark.parametrize(
    ("compiled", "document"), [(compile_input_schema, FULL_INPUT), (compile_output_schema, FULL_OUTPUT)]
)
@given(data=st.data())
def test_a_schema_compiles_or_is_refused_as_a_schema_whatever_one_place_of_it_holds(compiled, document, data):
    place = data.draw(st.sampled_from(list(places(document))))
    broken = replaced(document, place, data.draw(JSON))

    with suppress(SchemaInvalid):
        compiled(broken)


@given(JSON)
def test_any_row_compiles_or_is_refused_as_a_schema(row):
    with pytest.raises(SchemaInvalid):
        version_from_row("visits", row)


def test_a_partial_document_touches_only_its_models_and_a_whole_one_drops_the_others():
    both = after(EMPTY, visits=policy_rows(), digits=policy_rows())

    partly = after(both, complete=False, digits={"policy": None, "versions": []})
    whole = after(both, visits=policy_rows())

    assert set(partly.policies) == {"visits"}
    assert set(whole.policies) == {"visits"}


def test_keys_are_read_and_kept_when_a_document_names_none():
    first = apply_document(EMPTY, {"models": {}, "keys": [KEY]}, complete=True)
    second = apply_document(first, {"models": {}}, complete=False)

    assert second.keys["k1"].scopes == {"predict"}
    assert first.keys == second.keys


def test_the_secret_of_the_shared_cache_is_read_and_kept_when_a_document_does_not_have_it():
    first = apply_document(EMPTY, {"models": {}, "cache_secret": "ab" * 32}, complete=True)
    second = apply_document(first, {"models": {}}, complete=False)
    third = apply_document(second, {"models": {}, "cache_secret": None}, complete=False)

    assert first.cache_secret == second.cache_secret == bytes.fromhex("ab" * 32)
    assert third.cache_secret is None
    assert "abab" not in repr(first)


@pytest.mark.parametrize("secret", [None, "", "ab" * 31, "no hex", 7, ["ab" * 32], {}])
def test_a_secret_of_the_shared_cache_that_cannot_be_used_is_none(secret):
    snapshot = apply_document(
        EMPTY, {"models": {"visits": policy_rows()}, "keys": [], "cache_secret": secret}, complete=True
    )

    assert snapshot.cache_secret is None
    assert set(snapshot.policies) == {"visits"}


@pytest.mark.parametrize(
    "keys",
    [
        [{"id": "k2"}, KEY],
        [{"id": "k2", "sha256": "no hex", "scopes": []}, KEY],
        [{"id": "k2", "sha256": "ab" * 32, "scopes": "predict"}, KEY],
        [None, KEY],
        ["k2", KEY],
    ],
)
def test_a_key_that_cannot_be_read_opens_nothing_and_hides_no_other(keys):
    snapshot = apply_document(EMPTY, {"models": {"visits": policy_rows()}, "keys": keys}, complete=True)

    assert set(snapshot.keys) == {"k1"}
    assert set(snapshot.policies) == {"visits"}
