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
    is_scope,
    key_id_of,
    key_of,
    models_of,
    require,
    scopes_beyond,
    scopes_of,
    token_of,
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


def test_a_refusal_names_the_scope_with_the_paths_model_and_those_of_its_kind_that_the_key_has():
    scopes = frozenset({"register:visits", "predict:visits"})

    with pytest.raises(ScopeMissing, match="'register:vists'; this one has register:visits"):
        require(scopes, Scope.REGISTER, "vists")
    with pytest.raises(ScopeMissing, match="'register' for all models; this one has register:visits"):
        require(scopes, Scope.REGISTER)
    with pytest.raises(ScopeMissing, match=r"scope 'read'$"):
        require(scopes, Scope.READ, "visits")


def test_what_may_be_of_a_calls_body_or_is_no_models_name_is_not_repeated():
    for needed, name in ((Scope.PREDICT, "vists"), (Scope.READ, "a\nb"), (Scope.READ, "a" * 256)):
        with pytest.raises(ScopeMissing) as refused:
            require(frozenset({f"{needed}:visits"}), needed, name)
        assert refused.value.detail == f"this needs a key with scope '{needed}'; this one has {needed}:visits"


def test_a_caller_without_a_key_is_told_that_none_was_sent():
    snapshot = PolicySnapshot({}, keys=KEYS)

    with pytest.raises(ScopeMissing, match="no key was sent: this needs a key with scope 'operate'"):
        admit(snapshot, None, Scope.OPERATE, "visits", needs_key=False, now=0.0)
    with pytest.raises(Unauthenticated, match="no key was sent"):
        admit(snapshot, None, Scope.OPERATE, "visits", needs_key=True, now=0.0)


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


TOKEN = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJkYW5hIn0.c2lnbmF0dXJl"
BEARER = ApiKey("oidc:dana", b"", frozenset({"operate:fraud"}), expires_at=100.0)


def test_a_token_has_the_scopes_of_its_bearer_until_it_ends_where_tokens_are_read():
    asked: list[str] = []

    def tokens(token: str) -> ApiKey:
        asked.append(token)
        return BEARER

    header = f"Bearer  {TOKEN} "
    assert scopes_of(KEYS, header, needs_key=True, now=99.0, tokens=tokens) == {"operate:fraud"}
    assert key_of(PolicySnapshot(keys=KEYS), header, tokens) is BEARER
    assert asked == [TOKEN, TOKEN]
    with pytest.raises(Unauthenticated, match="token has expired"):
        scopes_of(KEYS, header, needs_key=True, now=100.0, tokens=tokens)
    with pytest.raises(Unauthenticated, match="the key is unknown"):
        scopes_of(KEYS, header, needs_key=True, now=0.0)


def test_a_key_is_a_key_where_tokens_are_read_as_well():
    def never(token: str) -> ApiKey:
        raise AssertionError(token)

    assert scopes_of(KEYS, "Bearer k1.secret", needs_key=True, now=0.0, tokens=never) == KEYS["k1"].scopes
    for header in (f"Basic {TOKEN}", "Bearer a.b.c", "Bearer ey.b", f"Bearer {TOKEN}.x", TOKEN):
        assert token_of(header) is None
        with pytest.raises(Unauthenticated):
            scopes_of(KEYS, header, needs_key=True, now=0.0, tokens=never)


@pytest.mark.parametrize("token", [f"{TOKEN}{'A' * 17_000}", f"{TOKEN}\u00e9"])
def test_a_token_is_read_only_up_to_a_length_and_in_ascii(token):
    with pytest.raises(Unauthenticated, match="at most 16384 characters"):
        token_of(f"Bearer {token}")


def test_scopes_are_for_all_models_or_for_one():
    assert all(map(is_scope, ("read", "keys", "operate:a:b", f"read:{'m' * 255}")))
    assert not any(map(is_scope, ("", "write", "keys:fraud", "read:", f"read:{'m' * 256}", "read:\0")))
