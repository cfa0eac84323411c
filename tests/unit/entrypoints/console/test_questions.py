import asyncio

import pytest

from understudy.entrypoints.console import questions
from understudy.entrypoints.console.questions import Kind, Questions
from understudy.errors import DeadlineExceeded, InternalFault, NotRegistered, Overloaded, RegistryUnavailable


class Source:
    """A question that is counted, and that can be told to fail or to wait."""

    def __init__(self) -> None:
        self.asked = 0
        self.problem: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def __call__(self) -> int:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        return self.asked


class World:
    def __init__(self) -> None:
        self.now = 1_000.0
        self.source = Source()
        self.questions = Questions(lambda: self.now, lambda: self.now)

    async def ask(self) -> questions.Answer:
        return await self.questions.shared("topic", self.source, 2.0)


async def test_viewers_share_an_answer_until_it_is_too_old():
    world = World()
    world.source.gate = asyncio.Event()
    viewers = [asyncio.create_task(world.ask()) for _ in range(50)]
    await asyncio.sleep(0)
    world.source.gate.set()
    values = {(await viewer).value for viewer in viewers}
    world.now += 1.9
    young = await world.ask()
    world.now += 0.2
    new = await world.ask()

    assert values == {1}
    assert (young.value, round(young.age_seconds, 1), new.value) == (1, 1.9, 2)


async def test_a_viewer_who_leaves_ends_no_question_of_others():
    world = World()
    world.source.gate = asyncio.Event()
    leaving, staying = asyncio.create_task(world.ask()), asyncio.create_task(world.ask())
    await asyncio.sleep(0)
    leaving.cancel()
    world.source.gate.set()

    assert (await staying).value == 1


async def test_the_last_answer_stays_while_postgres_is_away_and_says_why():
    world = World()
    await world.ask()
    world.source.problem = RegistryUnavailable("away")
    world.now += 5
    kept = await world.ask()
    again = await world.ask()
    world.source.problem = None
    world.now += 5
    back = await world.ask()

    assert (kept.value, kept.age_seconds, kept.problem is not None) == (1, 5.0, True)
    assert again.problem is not None
    assert (back.value, back.problem) == (3, None)


async def test_without_an_earlier_answer_the_problem_is_told_and_asked_for_no_more_often():
    world = World()
    world.source.problem = RegistryUnavailable("away")
    for _ in range(3):
        with pytest.raises(RegistryUnavailable):
            await world.ask()

    assert world.source.asked == 1


async def test_what_is_there_no_more_is_not_shown_from_memory():
    world = World()
    await world.ask()
    world.source.problem = NotRegistered("gone")
    world.now += 5

    with pytest.raises(NotRegistered):
        await world.ask()


async def test_a_question_has_a_deadline(monkeypatch):
    monkeypatch.setattr(questions, "READ_SECONDS", 0.001)
    world = World()
    world.source.gate = asyncio.Event()

    with pytest.raises(DeadlineExceeded):
        await world.ask()


async def test_few_questions_run_at_a_time_and_no_kind_waits_for_another(monkeypatch):
    monkeypatch.setattr(questions, "WAIT_SECONDS", 0.001)
    world = World()
    world.source.gate = asyncio.Event()
    asked = world.questions
    held = [asyncio.create_task(asked.shared(number, world.source, 2.0)) for number in range(questions.PLACES)]
    for _ in range(9):
        await asyncio.sleep(0)

    with pytest.raises(Overloaded):
        await asked.shared("one more", Source(), 2.0)
    assert [await kind(Source()) for kind in (asked.act, asked.ask, asked.enter)] == [1, 1, 1]
    world.source.gate.set()
    await asyncio.gather(*held)


async def test_the_page_that_asks_has_a_limit_of_its_own(monkeypatch):
    monkeypatch.setattr(questions, "ASK_SECONDS", 0.001)
    world = World()
    world.source.gate = asyncio.Event()

    with pytest.raises(DeadlineExceeded):
        await world.questions.ask(world.source)


async def test_a_known_picture_does_not_wait_for_a_postgres_that_hangs_and_says_that_it_is_late(monkeypatch):
    monkeypatch.setattr(questions, "PATIENCE_SECONDS", 0.001)
    world = World()
    await world.ask()
    world.source.gate = asyncio.Event()
    world.now += 3
    late = await world.ask()
    world.source.gate.set()
    for _ in range(9):
        await asyncio.sleep(0)
    new = await world.ask()

    assert (late.value, late.is_late, late.age_seconds) == (1, True, 3.0)
    assert new.value == 2


async def test_an_answer_after_news_is_waited_for_also_where_an_earlier_one_is_known(monkeypatch):
    monkeypatch.setattr(questions, "PATIENCE_SECONDS", 0.001)
    world = World()
    await world.ask()
    world.source.gate = asyncio.Event()
    told = asyncio.create_task(world.questions.anew("topic", world.source, 2.0))
    is_early, _ = await asyncio.wait((told,), timeout=0.02)
    world.source.gate.set()

    assert not is_early
    assert (await told).value == 2


async def test_who_comes_after_a_while_waits_for_a_newer_answer():
    world = World()
    await world.ask()
    world.source.gate = asyncio.Event()
    world.now += 60
    viewer = asyncio.create_task(world.ask())
    for _ in range(9):
        await asyncio.sleep(0)
    is_waiting = not viewer.done()
    world.source.gate.set()
    found = await viewer

    assert is_waiting
    assert (found.value, found.is_late) == (2, False)


async def test_a_topic_that_is_asked_for_is_not_forgotten(monkeypatch):
    monkeypatch.setattr(questions, "MAX_TOPICS", 2)
    world = World()
    world.source.gate = asyncio.Event()
    first = asyncio.create_task(world.ask())
    await asyncio.sleep(0)
    for number in range(3):
        await world.questions.shared(number, Source(), 2.0)
    second = asyncio.create_task(world.ask())
    await asyncio.sleep(0)
    world.source.gate.set()
    await asyncio.gather(first, second)

    assert world.source.asked == 1


async def test_topics_are_bounded_and_the_oldest_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(questions, "MAX_TOPICS", 3)
    world = World()
    await world.ask()
    for number in range(3):
        await world.questions.shared(number, Source(), 2.0)

    assert (await world.ask()).value == 2


async def test_no_page_and_no_act_waits_for_a_search_of_the_log():
    found, gate = Questions(), asyncio.Event()
    busy = [asyncio.create_task(found.search(gate.wait)) for _ in range(9)]
    await asyncio.sleep(0)

    looked, changed = await asyncio.gather(found.look(answer), found.change(answer))
    gate.set()
    await asyncio.gather(*busy)

    assert (looked, changed) == ("done", "done")


async def test_a_rollback_waits_for_no_dry_run_change_or_start():
    found, gate = Questions(), asyncio.Event()
    kinds = (found.look, found.change, found.start)
    busy = [asyncio.create_task(kind(gate.wait)) for kind in kinds for _ in range(9)]
    await asyncio.sleep(0)

    asked, acted = await asyncio.gather(found.ask(answer), found.act(answer))
    gate.set()
    await asyncio.gather(*busy)

    assert (asked, acted) == ("done", "done")


async def answer() -> str:
    return "done"


async def test_reports_have_two_places_of_their_own_and_a_third_is_told_to_come_again(monkeypatch):
    monkeypatch.setattr(questions, "WAIT_SECONDS", 0.01)
    world = World()
    slow = Source()
    slow.gate = asyncio.Event()
    asked = Questions(lambda: world.now, lambda: world.now)
    running = [asyncio.create_task(asked.shared(name, slow, 60.0, of=Kind.REPORT)) for name in ("drift", "shadow")]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await asked.shared("experiment", Source(), 60.0, of=Kind.REPORT)
    page = await asked.shared("models", Source(), 5.0)
    slow.gate.set()
    world.now += questions.AGAIN_SECONDS
    again = await asked.shared("experiment", Source(), 60.0, of=Kind.REPORT)

    assert (page.value, again.value) == (1, 1)
    assert sorted([(await one).value for one in running]) == [2, 2]


async def test_an_answer_that_an_act_has_changed_is_forgotten():
    world = World()
    before = await world.ask()
    world.questions.forget("topic")
    world.questions.forget("never asked")

    assert (before.value, (await world.ask()).value) == (1, 2)


async def test_a_page_waits_for_a_first_answer_no_longer_than_it_says_and_gets_it_the_next_time():
    slow, asked = Source(), Questions()
    slow.gate = asyncio.Event()

    late = await asked.shared("charts", slow, 60.0, of=Kind.CHARTS, first_seconds=0.0)
    slow.gate.set()
    again = await asked.shared("charts", slow, 60.0, of=Kind.CHARTS, first_seconds=10.0)

    assert (late.value, late.is_late) == (None, True)
    assert (again.value, again.is_late, slow.asked) == (1, False, 1)


async def test_charts_that_took_long_rest_for_longer_also_when_they_were_in_vain():
    world = World()

    async def slow() -> int:
        world.now += 20
        return await world.source()

    async def ask() -> questions.Answer:
        return await world.questions.shared("drawn", slow, 15.0, of=Kind.CHARTS)

    world.source.problem = RegistryUnavailable("away")
    for seconds in (0, 16, 16):
        world.now += seconds
        with pytest.raises(RegistryUnavailable):
            await ask()
    in_vain = world.source.asked
    world.source.problem = None
    world.now += 9
    found = await ask()

    assert in_vain == 1
    assert found.value == 2


async def test_a_defect_is_said_and_an_earlier_answer_stays():
    world = World()
    world.source.problem = ZeroDivisionError()
    with pytest.raises(InternalFault):
        await world.ask()
    world.source.problem = None
    world.now += 5
    await world.ask()
    world.source.problem = ZeroDivisionError()
    world.now += 5
    kept = await world.ask()

    assert (kept.value, type(kept.problem)) == (2, InternalFault)
