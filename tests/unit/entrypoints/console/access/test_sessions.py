import pytest

from understudy.entrypoints.console.access.sessions import (
    ABSOLUTE_SECONDS,
    IDLE_SECONDS,
    LINK_SECONDS,
    RENEWAL_SECONDS,
    Sessions,
)

SECRET = b"s" * 32


class Clock:
    def __init__(self) -> None:
        self.now = 1_795_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock) -> Sessions:
    return Sessions(SECRET, clock)


def test_a_cookie_names_the_session_that_it_was_made_of(sessions):
    session = sessions.start("k1")

    assert sessions.read(sessions.cookie(session)) == session


@pytest.mark.parametrize("change", [lambda c: c[:-2], lambda c: "x" + c, lambda c: c.partition(".")[0], lambda c: "é"])
def test_a_cookie_that_was_changed_names_none(sessions, change):
    assert sessions.read(change(sessions.cookie(sessions.start("k1")))) is None


def test_neither_no_cookie_nor_a_huge_one_nor_one_of_another_secret_names_a_session(sessions, clock):
    other = Sessions(b"t" * 32, clock)

    assert [sessions.read(text) for text in (None, "", "a." * 2_000, other.cookie(other.start("k1")))] == [None] * 4


def test_a_session_ends_an_hour_after_its_last_use(sessions, clock):
    cookie = sessions.cookie(sessions.start("k1"))
    clock.now += IDLE_SECONDS - 1
    used = sessions.renewed(sessions.read(cookie))
    clock.now += 2

    assert sessions.read(cookie) is None
    assert sessions.read(sessions.cookie(used)) == used


def test_a_session_ends_twelve_hours_after_the_sign_in_however_it_is_used(sessions, clock):
    session = sessions.start("k1")
    while clock.now - session.began_at < ABSOLUTE_SECONDS:
        assert sessions.read(sessions.cookie(session)) == session
        clock.now += IDLE_SECONDS / 2
        session = sessions.renewed(session)

    assert sessions.read(sessions.cookie(session)) is None


def test_a_cookie_is_renewed_once_a_minute(sessions, clock):
    session = sessions.start("k1")
    clock.now += RENEWAL_SECONDS - 1

    assert sessions.renewed(session) is None


def test_a_session_that_was_signed_out_is_read_no_more(sessions):
    session, other = sessions.start("k1"), sessions.start("k1")
    sessions.end(session)

    assert sessions.read(sessions.cookie(session)) is None
    assert sessions.read(sessions.cookie(other)) == other


def test_a_form_is_of_its_own_session_alone(sessions):
    session, other = sessions.start("k1"), sessions.start("k1")
    token = sessions.form_token(session)

    assert [sessions.is_form_of(one, token) for one in (session, other)] == [True, False]
    assert not sessions.is_form_of(session, "")
    assert not sessions.is_form_of(session, "é")
    assert token not in sessions.cookie(session)


def test_while_a_secret_is_replaced_sessions_and_forms_of_both_are_good(sessions, clock):
    replaced = Sessions(b"n" * 32, clock, SECRET)
    over = Sessions(b"n" * 32, clock)
    session = sessions.start("k1")
    cookie, token = sessions.cookie(session), sessions.form_token(session)

    assert replaced.read(cookie) == session
    assert replaced.is_form_of(session, token)
    assert replaced.is_form_of(replaced.of_proxy("proxy:kim"), sessions.form_token(sessions.of_proxy("proxy:kim")))
    assert over.read(replaced.cookie(session)) == session  # what is signed anew outlives the earlier secret
    assert (over.read(cookie), over.is_form_of(session, token)) == (None, False)


def test_a_link_signs_in_once_and_within_a_minute(sessions, clock):
    link, late = sessions.link("k1"), sessions.link("k1")
    clock.now += LINK_SECONDS - 1

    assert [sessions.key_of_link(link), sessions.key_of_link(link)] == ["k1", "k1"]  # looking uses nothing up
    assert [sessions.use_link(link), sessions.use_link(link), sessions.key_of_link(link)] == [True, False, None]
    clock.now += 1
    assert (sessions.key_of_link(late), sessions.use_link(late)) == (None, False)


def test_a_link_is_neither_a_cookie_nor_the_other_way_and_one_that_was_changed_is_none(sessions, clock):
    link, cookie = sessions.link("k1"), sessions.cookie(sessions.start("k1"))
    other = Sessions(b"t" * 32, clock).link("k1")

    assert sessions.read(link) is None
    assert [sessions.key_of_link(one) for one in (cookie, other, link[:-2], "x" + link, "", "é", "a." * 2_000)] == [
        None
    ] * 7
    assert sessions.key_of_link(link) == "k1"


def test_a_link_from_the_future_signs_no_visitor_in(sessions, clock):
    link = sessions.link("k1")
    clock.now -= 1

    assert sessions.key_of_link(link) is None
