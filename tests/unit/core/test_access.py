from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.access import ANONYMOUS, Scope, require, scopes_of
from understudy.core.policy import ApiKey
from understudy.errors import ScopeMissing, Unauthenticated

KEYS = {"k1": ApiKey("k1", sha256(b"secret").digest(), frozenset({"predict:visits", "operate"}))}


def test_a_key_brings_its_scopes():
    assert scopes_of(KEYS, "Bearer k1.secret", needs_key=True) == {"predict:visits", "operate"}
    assert scopes_of(KEYS, "bearer  k1.secret ", needs_key=False) == {"predict:visits", "operate"}


@given(st.text(max_size=600))
def test_no_other_credential_opens_anything(credential):
    for header in (credential, f"Bearer {credential}", f"Bearer k1.{credential}"):
        if header.split()[-1:] == ["k1.secret"]:
            continue
        with pytest.raises(Unauthenticated):
            scopes_of(KEYS, header, needs_key=False)


def test_without_a_key_loopback_may_predict_and_read_but_not_operate():
    assert scopes_of(KEYS, None, needs_key=False) == ANONYMOUS
    require(ANONYMOUS, Scope.PREDICT, "visits")
    require(ANONYMOUS, Scope.READ)
    with pytest.raises(ScopeMissing, match="'operate'"):
        require(ANONYMOUS, Scope.OPERATE)
    with pytest.raises(Unauthenticated):
        scopes_of(KEYS, None, needs_key=True)


def test_a_scope_for_one_model_is_for_that_model():
    scopes = frozenset({"predict:visits"})

    require(scopes, Scope.PREDICT, "visits")
    with pytest.raises(ScopeMissing):
        require(scopes, Scope.PREDICT, "digits")
    with pytest.raises(ScopeMissing):
        require(scopes, Scope.READ)
