"""Answers that callers do not take: which are ended, and when."""

import pytest

from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers, UnreadLimits

LIMITS = UnreadLimits(answers=8, size_bytes=1_000, seconds=10)


class Call:
    """One that is over, but for its answer."""

    def __init__(self, name: str, ended: list[str]) -> None:
        self._name = name
        self._ended = ended

    def reset(self) -> None:
        self._ended.append(self._name)


class World:
    """Answers that stand, by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ended: list[str] = []
        self.told: list[tuple[str, int]] = []
        self.unread = UnreadAnswers(LIMITS, lambda: self.now, lambda why, calls: self.told.append((why, calls)))

    def hold(self, caller: str, count: int = 1, size: int = 0) -> list[Call]:
        calls = [Call(f"{caller}{i}", self.ended) for i in range(count)]
        for call in calls:
            self.unread.hold(call, caller, size)
        return calls


@pytest.fixture
async def world():
    found = World()
    yield found
    found.unread.end_all()
    found.unread.close()


async def test_an_answer_that_was_taken_stands_no_more(world):
    for call in world.hold("a", 2):
        world.unread.release(call)

    assert (len(world.unread), world.told) == (0, [])


async def test_where_too_many_stand_the_oldest_of_who_has_most_give_way(world):
    world.hold("few", 2)
    world.hold("most", 6)

    world.hold("few", 1)

    assert sorted(world.ended) == ["most0", "most1"]  # a quarter of eight
    assert world.told == [("many", 2)]
    assert len(world.unread) == 7


async def test_where_all_have_little_the_oldest_of_all_give_way(world):
    for caller in "abcdefgh":
        world.hold(caller)

    world.hold("i")

    assert sorted(world.ended) == ["a0", "b0"]


async def test_answers_that_came_at_once_to_a_caller_that_reads_do_not_give_way(world):
    for caller in "abcd":
        world.hold(caller)
    world.now = 1.0

    world.hold("reads", 5)

    assert sorted(world.ended) == ["a0", "b0"]


async def test_bytes_are_bounded_as_answers_are(world):
    world.hold("few", 3)
    world.hold("most", 2, size=400)

    world.hold("other", 1, size=300)

    assert world.ended == ["most0"]


async def test_an_answer_beyond_all_bytes_stands_alone(world):
    world.hold("a", 1, size=5_000)
    world.hold("b", 1, size=10)

    assert world.ended == ["a0"]
    assert len(world.unread) == 1


async def test_late_answers_end_and_longer_ones_have_more_time(world):
    unread = UnreadAnswers(LIMITS._replace(size_bytes=10**6), lambda: world.now, lambda *told: world.told.append(told))
    short, long = world.hold("a", 2)
    for call, size in ((short, 0), (long, 131_072)):
        world.unread.release(call)
        unread.hold(call, "a", size)

    world.now = 11.0
    unread.sweep()
    assert world.ended == ["a0"]
    world.now = 12.0
    unread.sweep()
    unread.close()

    assert world.told == [("late", 1), ("late", 1)]


async def test_memory_pressure_ends_all(world):
    world.hold("a", 3)
    world.unread.end_all()

    assert (len(world.unread), world.told) == (0, [("memory", 3)])
