import re

from understudy import errors
from understudy.entrypoints.proxy.messages.problems import STATUS
from understudy.errors import UnderstudyError, leaf_errors


def drawn() -> dict[str, str]:
    """Return name → code as the drawing at the top of the page has them."""
    return dict(re.findall(r"[├└]── (\w+) +(E\d{3}) ", errors.__doc__ or ""))


def test_the_drawing_shows_every_error_with_its_code():
    assert drawn() == {error.__name__: error.code for error in leaf_errors()}


def test_every_error_has_exactly_one_http_status():
    assert set(STATUS) == set(leaf_errors())


def test_no_two_errors_share_a_code():
    codes = [error.code for error in leaf_errors()]

    assert len(set(codes)) == len(codes)


def test_every_error_says_what_to_do_next():
    for error in leaf_errors():
        assert error.title
        assert error.hint.endswith((".", "…")), error
        assert issubclass(error, UnderstudyError)
