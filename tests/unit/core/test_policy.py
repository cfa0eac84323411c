from typing import Any

from builders import a_version_row, policy_rows

from understudy.core.policy import PolicySnapshot, Role, apply_document

EMPTY = PolicySnapshot()


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


def test_an_unchanged_version_is_not_compiled_again():
    first = after(EMPTY, visits=policy_rows())
    second = after(first, visits=policy_rows(generation=2, champion_version=2))

    assert second.policies["visits"].versions["1"] is first.policies["visits"].versions["1"]


def test_a_version_with_other_endpoints_is_another_value():
    first = after(EMPTY, visits=policy_rows())
    moved = [a_version_row("1", endpoints=["127.0.0.1:9001"])]
    second = after(first, visits=policy_rows(versions=moved))

    assert second.policies["visits"].champion.endpoints == ("127.0.0.1:9001",)


def test_rows_of_a_lower_generation_are_ignored():
    newer = after(EMPTY, visits=policy_rows(generation=5, champion_version=2))
    stale = after(newer, visits=policy_rows(generation=4, champion_version=1))

    assert stale.policies["visits"] is newer.policies["visits"]


def test_rows_that_cannot_be_used_leave_the_last_good_policy_and_are_named():
    good = after(EMPTY, visits=policy_rows())
    unusable: list[dict[str, Any]] = [
        policy_rows(generation=2, versions=[a_version_row("1", input_schema={"features": []})]),
        policy_rows(generation=2, champion_version=99),
        policy_rows(generation=2, champion_version=None),
        policy_rows(generation=2, challenger_weight="many"),
        {"policy": {}, "versions": []},
    ]
    for broken in unusable:
        snapshot = after(good, visits=broken)

        assert snapshot.policies["visits"] is good.policies["visits"]
        assert "visits" in snapshot.rejected


def test_a_version_that_nobody_routes_to_may_be_broken():
    broken = a_version_row("3", input_schema={})
    snapshot = after(EMPTY, visits=policy_rows(versions=[a_version_row("1"), broken]))

    assert set(snapshot.policies["visits"].versions) == {"1"}


def test_a_partial_document_touches_only_its_models_and_a_whole_one_drops_the_others():
    both = after(EMPTY, visits=policy_rows(), digits=policy_rows())

    partly = after(both, complete=False, digits={"policy": None, "versions": []})
    whole = after(both, visits=policy_rows())

    assert set(partly.policies) == {"visits"}
    assert set(whole.policies) == {"visits"}


def test_keys_are_read_and_kept_when_a_document_names_none():
    key = {"id": "k1", "sha256": "ab" * 32, "scopes": ["predict"]}
    first = apply_document(EMPTY, {"models": {}, "keys": [key]}, complete=True)
    second = apply_document(first, {"models": {}}, complete=False)

    assert second.keys["k1"].scopes == {"predict"}
    assert first.keys == second.keys
