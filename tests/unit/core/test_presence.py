from understudy.core.presence import PRESENT_SECONDS, is_present


def test_a_proxy_is_there_until_it_was_silent_for_too_long():
    assert is_present(0.0)
    assert is_present(PRESENT_SECONDS)
    assert not is_present(PRESENT_SECONDS + 0.001)
