import asyncio

import pytest

from understudy.entrypoints.console import doing
from understudy.entrypoints.console.doing import KEPT_SECONDS, Done, Once
from understudy.errors import GenerationMoved


class Act:
    def __init__(self) -> None:
        self.done = 0
        self.fails = False

    async def __call__(self) -> Done:
        self.done += 1
        await asyncio.sleep(0)
        if self.fails:
            raise GenerationMoved("moved")
        return Done(f"done {self.done}", changed=True)


async def test_a_form_that_is_sent_fifty_times_at_once_is_one_act():
    once, act = Once(), Act()

    results = await asyncio.gather(*(once.do("s1", "n1", act) for _ in range(50)))

    assert {result.sentence for result in results} == {"done 1"}
    assert act.done == 1


async def test_forms_of_other_sessions_and_other_forms_are_other_acts():
    once, act = Once(), Act()

    for session, nonce in (("s1", "n1"), ("s1", "n2"), ("s2", "n1")):
        await once.do(session, nonce, act)

    assert act.done == 3


async def test_an_act_that_failed_may_be_tried_again_with_the_same_form():
    once, act = Once(), Act()
    act.fails = True
    with pytest.raises(GenerationMoved):
        await once.do("s1", "n1", act)
    assert once.result("s1", "n1") is None
    act.fails = False

    assert (await once.do("s1", "n1", act)).sentence == "done 2"


async def test_a_result_is_of_its_session_alone_and_kept_for_ten_minutes():
    now = 0.0
    once, act = Once(lambda: now), Act()
    done = await once.do("s1", "n1", act)

    assert (once.result("s1", "n1"), once.result("s2", "n1")) == (done, None)
    now = KEPT_SECONDS
    assert (await once.do("s1", "n1", act)).sentence == "done 2"


async def test_results_are_bounded(monkeypatch):
    monkeypatch.setattr(doing, "MAX_KEPT", 3)
    once, act = Once(), Act()
    for number in range(10):
        await once.do("s1", f"n{number}", act)

    assert once.result("s1", "n0") is None
    assert once.result("s1", "n9") is not None
