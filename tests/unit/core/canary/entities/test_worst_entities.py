"""Which entities a challenger fails, of what is counted of each."""

import orjson
import pytest

from understudy.core.canary.entities.entity_tally import MAX_ENTITIES, Before, EntityCalls, EntityTally
from understudy.core.canary.entities.worst_entities import (
    LEVELS,
    EntityCounts,
    counts_from_json,
    counts_to_json,
    entities_words,
    failing_entities,
)

OTHERS = 100


def stretch(*failing: str, others: int = OTHERS, failing_others: int = 0) -> list[EntityCalls]:
    """Return what came of a call of each entity in a stretch."""
    calls = [EntityCalls(name, 4, 4, 1, 1, ((place, 17),)) for place, name in enumerate(failing)]
    return [
        *calls,
        *(
            EntityCalls(f"other-{place}", 1, int(place < failing_others), 1, int(place < failing_others), ())
            for place in range(others)
        ),
    ]


def counted(*stretches: list[EntityCalls], before: dict[str, Before] | None = None) -> EntityCounts:
    tally = EntityTally()
    for one in stretches:
        tally.add(one)
    return tally.counts(before or {})


def test_an_entity_that_always_fails_is_named_after_its_third_stretch_and_the_words_have_its_figures():
    before = {"acme": Before(120, 0)}
    first, then = counted(*[stretch("acme")] * 2, before=before), counted(*[stretch("acme")] * 3, before=before)

    assert failing_entities(first, 0.005) == ()
    (found,) = failing_entities(then, 0.005)
    assert found.counted.rows == ((0, 17),) * 3
    assert entities_words([found], 0.005) == (
        "1 entity fails 100 % of its calls (12 of 12; champion 0.5 %; on the champion 0 of 120 failed in the six hours "
        "before); no check takes the version back: an operator decides"
    )


def test_an_entity_that_failed_on_the_champion_as_well_is_not_named():
    assert failing_entities(counted(*[stretch("acme")] * 9, before={"acme": Before(120, 120)}), 0.005) == ()


def test_an_entity_whose_past_is_not_known_is_named_and_it_is_said():
    (found,) = failing_entities(counted(*[stretch("acme")] * 9), 0.005)

    assert "not known what came of its calls before" in entities_words([found], 0.005)


def test_a_stretch_in_which_a_tenth_of_the_others_fail_is_an_incident_and_does_not_count():
    incident = stretch("acme", failing_others=OTHERS // 10)

    assert failing_entities(counted(*[incident] * 9), 0.005) == ()
    assert len(failing_entities(counted(*[incident] * 9, *[stretch("acme")] * 3), 0.005)) == 1


def test_what_is_known_to_an_operator_is_not_named_again_and_another_one_is():
    counts = counted(*[stretch("acme", "zenith")] * 4)

    both = failing_entities(counts, 0.005)
    rest = failing_entities(counts.without({both[0].counted.key}), 0.005)

    assert len(both) == 2
    assert [one.counted.key for one in rest] == [both[1].counted.key]
    assert entities_words(both, 0.005).startswith("2 entities fail, the worst of them 100 % of its calls (16 of 16;")


def test_calls_with_the_same_inputs_are_one_call():
    again = [EntityCalls("acme", 3, 2, 1, 0, ((1, 17),)), *stretch()]

    assert failing_entities(counted(*[again] * 20), 0.005) == ()


def test_an_entity_that_fails_one_call_in_ten_is_not_named():
    tenth = [EntityCalls("acme", 10, 1, 10, 1, ((1, 17),)), *stretch()]

    assert failing_entities(counted(*[tenth] * 50), 0.005) == ()


@pytest.mark.deep
def test_the_number_of_entities_is_bounded_and_those_that_come_later_are_not_counted():
    tally = EntityTally()
    tally.add([EntityCalls(str(place), 1, 0, 1, 0) for place in range(MAX_ENTITIES)])
    for _ in range(5):
        tally.add([EntityCalls("late", 1, 1, 1, 1, ((1, 17),))])

    assert tally.counts({}).seen == MAX_ENTITIES
    assert tally.counts({}).worst == ()


def test_what_is_stored_holds_no_name_and_comes_back_as_it_was():
    counts = counted(*[stretch("acme")] * 4, before={"acme": Before(120, 1)})

    stored = orjson.dumps(counts_to_json(counts))

    assert b"acme" not in stored
    assert counts_from_json(orjson.loads(stored)) == counts
    assert len(counts.worst[0].units) == LEVELS + 1


@pytest.mark.parametrize("damage", [{}, {"worst": [{}]}, {"worst": [{"rows": [[1, "x"]], "units": []}]}])
def test_damaged_counts_are_refused(damage):
    with pytest.raises((LookupError, TypeError, ValueError)):
        counts_from_json(damage)
