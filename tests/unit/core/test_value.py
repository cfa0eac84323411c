import pytest

from understudy.core.value import Slotted, Value


class Point(Value, frozen=True, gc=False):
    x: int
    y: int = 0


def test_a_changed_value_is_another_one_and_the_first_stays():
    point = Point(1, 2)

    assert point.but(y=3) == Point(1, 3)
    assert point == Point(1, 2)


def test_a_value_cannot_be_changed_in_place():
    with pytest.raises(AttributeError):
        Point(1).x = 2  # type: ignore[misc]  # what is tested


def test_only_fields_that_there_are_can_be_changed():
    with pytest.raises(TypeError):
        Point(1).but(z=1)


class Waiting(Slotted):
    row: bytes
    is_over: bool = False


def test_an_object_under_way_is_filled_in_place_and_equals_only_itself():
    waiting = Waiting(b"row")
    waiting.is_over = True

    assert waiting.is_over
    assert waiting == waiting  # noqa: PLR0124 - what is tested
    assert waiting != Waiting(b"row", is_over=True)
    assert len({waiting, Waiting(b"row")}) == 2
