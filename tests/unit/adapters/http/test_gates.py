"""The signature of questions to gates."""

from understudy.adapters.http.gates import signature
from understudy.core.upstream.receivers import signing_key


def test_a_question_is_signed_as_standard_webhooks_has_it():
    """Source: Standard Webhooks, the example of its reference libraries' tests."""
    secret = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
