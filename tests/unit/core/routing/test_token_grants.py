"""Which claims give which scopes."""

import json
from typing import Any

import pytest

from understudy.core.routing.token_grants import given_scopes, parse_grants

GRANTS = """{
    "groups": {"ml-oncall": ["read", "operate"], "fraud": ["operate:fraud", "read:fraud"]},
    "realm_access.roles": {"releaser": ["register:fraud"]},
    "scope": {"predict": ["predict"]}
}"""


def given(**claims: object) -> set[str]:
    return set(given_scopes(parse_grants(GRANTS), claims))


def test_each_value_of_a_claim_gives_its_scopes():
    assert given() == set()
    assert given(groups="fraud") == {"operate:fraud", "read:fraud"}
    assert given(groups=["fraud", "ml-oncall", 7, None]) == {"operate:fraud", "read:fraud", "operate", "read"}
    assert given(groups=["ml-oncall-2", "ML-ONCALL", "ml oncall"]) == set()


def test_a_list_in_one_text_is_one_only_where_the_standard_says_so():
    assert given(scope="openid predict") == {"predict"}
    assert given(groups="fraud ml-oncall") == set()


def test_a_claim_inside_of_others_is_found_by_its_path():
    assert given(realm_access={"roles": ["releaser"]}) == {"register:fraud"}
    assert given(**{"realm_access.roles": "releaser"}) == {"register:fraud"}
    assert given(realm_access="roles") == given(realm_access=["roles"]) == set()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("groups", "no JSON"),
        ("[]", "expected"),
        ('{"groups": ["read"]}', "expected"),
        ('{"groups": {"fraud": "read"}}', "a list of scopes"),
        ('{"groups": {"fraud": [1]}}', "a list of scopes"),
        ('{"groups": {"fraud": ["write"]}}', "there is no scope 'write'"),
        ('{"groups": {"fraud": ["keys:fraud"]}}', "there is no scope"),
        ('{"groups": {"fraud": ["read:"]}}', "there is no scope"),
        ('{"scope": {"": ["operate"]}}', "an empty name"),
        ('{"": {"fraud": ["operate"]}}', "an empty name"),
        ('{"groups": {"fraud": ["read"]}, "groups": {"oncall": ["operate"]}}', "groups is named twice"),
        ('{"groups": {"fraud": ["read"], "fraud": ["operate"]}}', "fraud is named twice"),
    ],
)
def test_what_is_no_mapping_of_claims_is_refused(text, problem):
    with pytest.raises(ValueError, match=problem):
        parse_grants(text)


class Said(dict[str, Any]):
    """Claims that count how often they are read."""

    reads = 0

    def __getitem__(self, name: str) -> Any:
        self.reads += 1
        return super().__getitem__(name)


def test_a_claim_is_read_once_however_many_values_the_settings_name():
    grants = parse_grants(json.dumps({"groups": {f"g{number}": [f"read:{number}"] for number in range(1_000)}}))
    claims = Said(groups=[f"g{number}" for number in range(998, 1_198)])

    assert given_scopes(grants, claims) == {"read:998", "read:999"}
    assert claims.reads == 1


def test_there_are_so_many_values_at_most():
    values = ", ".join(f'"{number}": []' for number in range(1_001))

    with pytest.raises(ValueError, match="at most 1000"):
        parse_grants(f'{{"groups": {{{values}}}}}')
