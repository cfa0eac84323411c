import asyncio

from understudy.adapters.memory.tracing import MemoryTracer
from understudy.ports.telemetry.tracing import CURRENT, Span, within
from understudy.serving.turn_group import TurnGroup


async def a_turn() -> None:
    """Let the event loop end its turn."""
    await asyncio.sleep(0)


async def test_what_comes_in_a_turn_is_given_on_together_in_its_order_and_the_rest_in_the_next_one():
    taken: list[list[int]] = []
    group = TurnGroup[int](taken.append)

    group.add(1)
    group.add(2)
    count = len(group)
    await a_turn()
    group.add(3)
    await a_turn()

    assert count == 2
    assert taken == [[1, 2], [3]]


async def test_what_comes_while_a_group_is_taken_is_for_the_next_turn():
    taken: list[list[int]] = []

    def take(come: list[int]) -> None:
        taken.append(come)
        if come == [1]:
            group.add(2)

    group = TurnGroup[int](take)
    group.add(1)
    await a_turn()
    before = taken.copy()
    await a_turn()

    assert before == [[1]]
    assert taken == [[1], [2]]


async def test_what_ended_early_is_not_given_on_again():
    taken: list[list[int]] = []
    group = TurnGroup[int](taken.append)

    group.add(1)
    group.end()
    await a_turn()

    assert taken == [[1]]


async def test_a_group_belongs_to_no_trace_whoever_came_first():
    seen: list[Span | None] = []
    group = TurnGroup[int](lambda _come: seen.append(CURRENT.get()))

    with within(MemoryTracer().receive("call", None, {})):
        group.add(1)
        await a_turn()

    assert seen == [None]


async def test_several_that_come_together_join_those_of_the_turn():
    taken: list[list[int]] = []
    group = TurnGroup[int](taken.append)

    group.extend([])
    none = len(group)
    group.extend([1, 2])
    group.add(3)
    group.extend([4])
    await a_turn()

    assert (none, taken) == (0, [[1, 2, 3, 4]])
