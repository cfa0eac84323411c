import pytest

from understudy.entrypoints.proxy.control.keys import KeyCreation
from understudy.errors import BodyInvalid

HASHED = b'"sha256": "' + b"a" * 64 + b'"'


@pytest.mark.parametrize("fields", [b'"id": "0123456789ab"', HASHED])
def test_an_id_without_a_hash_is_refused_and_not_left_out_silently(fields):
    with pytest.raises(BodyInvalid) as refused:
        KeyCreation.read(b'{"scopes": ["read"], ' + fields + b"}")

    assert "given together" in refused.value.violations[0].detail


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2027-01-31", "soon"])
def test_a_moment_that_there_is_not_is_a_problem_of_the_field(moment):
    with pytest.raises(BodyInvalid) as refused:
        KeyCreation.read(b'{"scopes": ["read"], "expires_at": "' + moment.encode() + b'"}')

    assert refused.value.violations[0].pointer == "/expires_at"
