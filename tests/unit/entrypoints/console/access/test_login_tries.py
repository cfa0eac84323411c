import pytest

from understudy.entrypoints.console.access import login_tries
from understudy.entrypoints.console.access.login_tries import LoginTries
from understudy.errors import TooManyLogins


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_few_tries_of_an_address_are_let_through_in_a_minute(monkeypatch):
    monkeypatch.setattr(login_tries, "TRIES_OF_ADDRESS", 5)
    clock = Clock()
    tries = LoginTries(clock)
    for number in range(5):
        tries.begin("10.0.0.1", f"k{number}")
        clock.now += 10

    with pytest.raises(TooManyLogins) as refused:
        tries.begin("10.0.0.1", "k9")
    tries.begin("10.0.0.2", "k9")
    clock.now += 10

    assert refused.value.retry_after_seconds == 10
    tries.begin("10.0.0.1", "k9")


def test_five_tries_with_one_key_id_are_let_through_from_one_address():
    clock = Clock()
    tries = LoginTries(clock)
    for _ in range(5):
        tries.begin("10.0.0.1", "k1")

    with pytest.raises(TooManyLogins) as refused:
        tries.begin("10.0.0.1", "k1")
    tries.begin("10.0.0.1", "k2")
    tries.begin("10.0.0.2", "k1")
    clock.now += 60
    tries.begin("10.0.0.1", "k1")

    assert refused.value.retry_after_seconds == 60


def test_what_names_no_key_is_counted_by_its_address_alone(monkeypatch):
    monkeypatch.setattr(login_tries, "TRIES_OF_ADDRESS", 5)
    tries = LoginTries(Clock())
    for number in range(30):
        tries.begin(f"10.0.0.{number // 5}", "")

    with pytest.raises(TooManyLogins):
        tries.begin("10.0.0.5", "")
    tries.begin("10.0.0.9", "")


def test_twenty_tries_with_one_key_id_are_let_through_from_wherever_they_come():
    tries = LoginTries(Clock())
    for number in range(20):
        tries.begin(f"10.0.0.{number}", "k1")

    with pytest.raises(TooManyLogins):
        tries.begin("10.0.1.1", "k1")


def test_a_try_that_was_right_is_not_counted():
    tries = LoginTries(Clock())
    for _ in range(50):
        tries.begin("10.0.0.1", "k1")
        tries.forgive("10.0.0.1", "k1")


def test_what_is_counted_is_bounded_and_the_oldest_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(login_tries, "TRIES_OF_ADDRESS", 5)
    monkeypatch.setattr(login_tries, "MAX_COUNTED", 4)
    tries = LoginTries(Clock())
    for number in range(5):
        tries.begin("10.0.0.1", f"k{number}")
    for number in range(4):
        tries.begin(f"10.0.1.{number}", f"m{number}")

    tries.begin("10.0.0.1", "k9")
