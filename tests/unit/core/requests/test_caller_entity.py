"""The entity of a call of one row, told simply where that can be: as the whole rule tells it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.requests.caller_entity import EntityFrom, Named, Whose, only_entity, owners_of
from understudy.errors import UnderstudyError

NAMES = st.one_of(st.none(), st.sampled_from(["e", "f", "", "7", 7, "x" * 255, "x" * 256, "a\0", ["e"], None, 1.5]))


def _named(value: Any, place: str) -> Named | None:
    return None if value is None else Named(value, place)


@given(
    NAMES,
    st.one_of(st.none(), st.sampled_from(["e", "", "7", "x" * 256, "a\0"])),
    st.sampled_from([None, "vip"]),
    st.sampled_from([None, ["e"]]),
)
def test_a_name_that_is_told_simply_is_the_one_of_the_whole_rule(
    by_body: Any, by_header: str | None, category: str | None, by_row: list[str] | None
):
    whose = Whose(by_row, None, _named(by_body, "the body"), _named(category, "the body"))

    found = only_entity(whose, by_header)

    try:
        # Two headers that say nothing of a category: the whole rule is taken by way of a second row.
        owners = owners_of(
            whose if by_row is None else Whose([*by_row, *by_row], None, whose.entity, whose.category),
            2,
            entity=_named(by_header, "x-entity-id"),
            category=None,
            draw=None,
        )
    except UnderstudyError:
        assert found is None
    else:
        assert found in (None, owners.rows[0][0])
        is_simple = by_row is None and category is None and by_body in (None, "e", "f", "7", "x" * 255)
        assert (found is not None) == (is_simple and owners.found is EntityFrom.CALL)
