from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.routing.access import (
    ANONYMOUS,
    ANY_MODEL,
    Scope,
    admit,
    key_id_of,
    models_of,
    require,
    scopes_beyond,
    scopes_of,
)
from understudy.core.routing.policy import ApiKey, PolicySnapshot
from understudy.errors import PolicyNotLoaded, ScopeMissing, Unauthenticated

KEYS = {"k1": ApiKey("k1", sha256(b"secret").digest(), frozenset({"predict:visits", "operate"}))}


def test_a_key_brings_its_scopes():
    assert scopes_of(KEYS, "Bearer k1.secret", needs_key=True, now=0.0) == {"predict:visits", "operate"}
    assert scopes_of(KEYS, "bearer  k1.secret ", needs_key=False, now=0.0) == {"predict:visits", "operate"}


@given(st.text(max_size=600))
def test_no_other_credential_opens_anything(credential):
    for header in (credential, f"Bearer {credential}", f"Bearer k1.{credential}"):
        if header.split()[-1:] == ["k1.secret"]:
            continue
        with pytest.raises(Unauthenticated):
            scopes_of(KEYS, header, needs_key=False, now=0.0)


def test_without_a_key_loopback_may_predict_and_read_but_not_operate():
    assert scopes_of(KEYS, None, needs_key=False, now=0.0) == ANONYMOUS
    require(ANONYMOUS, Scope.PREDICT, "visits")
    require(ANONYMOUS, Scope.READ)
    with pytest.raises(ScopeMissing, match="'operate'"):
        require(ANONYMOUS, Scope.OPERATE)
    with pytest.raises(Unauthenticated):
        scopes_of(KEYS, None, needs_key=True, now=0.0)


def test_a_scope_for_one_model_is_for_that_model():
    scopes = frozenset({"predict:visits"})

    require(scopes, Scope.PREDICT, "visits")
    with pytest.raises(ScopeMissing):
        require(scopes, Scope.PREDICT, "digits")
    with pytest.raises(ScopeMissing):
        require(scopes, Scope.READ)


@pytest.mark.parametrize("kind", Scope)
def test_every_scope_can_be_for_one_model_and_is_then_for_no_other(kind):
    scopes = frozenset({f"{kind}:visits"})

    require(scopes, kind, "visits")
    require(scopes, kind, ANY_MODEL)
    assert models_of(scopes, kind) == frozenset({"visits"})
    for other in (None, "digits", "", "visits:x"):
        with pytest.raises(ScopeMissing):
            require(scopes, kind, other)
    for another in set(Scope) - {kind}:
        with pytest.raises(ScopeMissing):
            require(scopes, another, ANY_MODEL)


def test_a_scope_without_a_model_is_for_all_of_them():
    assert models_of(frozenset({"read", "read:visits"}), Scope.READ) is None
    assert models_of(frozenset({"operate:a:b", "read:c", "readable"}), Scope.OPERATE) == frozenset({"a:b"})
    assert models_of(frozenset(), Scope.READ) == frozenset()


@pytest.mark.parametrize("needs_key", [True, False])
def test_a_key_is_not_called_unknown_before_the_keys_are_there(needs_key):
    with pytest.raises(PolicyNotLoaded):
        admit(None, "Bearer k1.secret", Scope.PREDICT, "visits", needs_key=needs_key, now=0.0)


def test_who_sends_no_key_is_judged_without_the_keys():
    admit(None, None, Scope.READ, needs_key=False, now=0.0)
    with pytest.raises(Unauthenticated):
        admit(None, None, Scope.READ, needs_key=True, now=0.0)


def test_a_caller_passes_with_the_scope_and_only_with_it():
    snapshot = PolicySnapshot(keys=KEYS)

    admit(snapshot, "Bearer k1.secret", Scope.PREDICT, "visits", needs_key=True, now=0.0)
    admit(snapshot, "Bearer k1.secret", Scope.OPERATE, needs_key=True, now=0.0)
    with pytest.raises(ScopeMissing):
        admit(snapshot, "Bearer k1.secret", Scope.PREDICT, "digits", needs_key=True, now=0.0)
    with pytest.raises(Unauthenticated):
        admit(snapshot, "Bearer k1.wrong", Scope.OPERATE, needs_key=True, now=0.0)


def test_a_caller_is_called_by_the_id_of_the_key():
    assert key_id_of("Bearer k1.secret") == key_id_of("bearer  k1.secret ") == "k1"
    assert key_id_of(None) == "anonymous"


@given(st.text(max_size=50))
def test_no_secret_is_part_of_what_a_caller_is_called(secret):
    assert key_id_of(f"Bearer k1.{secret}") == "k1"


def test_a_key_is_refused_from_its_end_on():
    keys = {"k1": replace(KEYS["k1"], expires_at=100.0)}

    assert scopes_of(keys, "Bearer k1.secret", needs_key=True, now=99.9)
    for wrong in ("Bearer k1.secret", "Bearer k1.wrong"):
        with pytest.raises(Unauthenticated) as refused:
            scopes_of(keys, wrong, needs_key=True, now=100.0)
        assert ("expired" in refused.value.detail) == (wrong == "Bearer k1.secret")


def test_a_key_gives_no_other_one_a_scope_that_it_lacks():
    assert scopes_beyond(frozenset({"read", "predict:visits"}), ["read:visits", "predict:visits"]) == []
    assert scopes_beyond(frozenset({"read", "predict:visits"}), ["predict", "operate:visits"]) == [
        "predict",
        "operate:visits",
    ]
