from understudy.core.loading.state import MAX_ATTEMPTS, MAX_COUNTED, next_attempt, retry_seconds


def test_pauses_double_and_after_the_last_attempt_a_person_has_to_ask():
    assert [retry_seconds(attempt) for attempt in range(1, MAX_ATTEMPTS + 1)] == [1, 2, 4, 8, None]


def test_attempts_are_counted_as_far_as_a_record_can_hold_them():
    after = {0: 1, 1: 2, MAX_COUNTED - 1: MAX_COUNTED, MAX_COUNTED: MAX_COUNTED}

    assert {attempt: next_attempt(attempt) for attempt in after} == after
