from understudy.loading.server_refusal import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, ServerRefusal


def test_pauses_double_up_to_a_minute_and_begin_anew_once_the_refusal_is_over():
    now = 100.0
    refusal = ServerRefusal(lambda: now)
    pauses = []
    for _ in range(6):
        assert not refusal.has_pause
        refusal.note("E215 no")
        begun = now
        while refusal.has_pause:
            now += 1
        pauses.append(now - begun)
    refusal.clear()
    assert (refusal.words, refusal.has_pause) == ("", False)
    refusal.note("E215 no")
    now += FIRST_PAUSE_SECONDS

    assert pauses == [5, 10, 20, 40, 60, MAX_PAUSE_SECONDS]
    assert not refusal.has_pause
