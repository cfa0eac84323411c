from understudy.core.loading.state import MAX_ATTEMPTS, retry_seconds


def test_pauses_double_and_after_the_last_attempt_a_person_has_to_ask():
    assert [retry_seconds(attempt) for attempt in range(1, MAX_ATTEMPTS + 1)] == [1, 2, 4, 8, None]
