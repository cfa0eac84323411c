import asyncio

from understudy.serving.shadow_pool import ShadowPool


def test_what_does_not_fit_is_dropped_and_named_until_a_call_has_ended():
    dropped: list[str] = []
    shadows = ShadowPool(2, dropped.append)

    taken = [shadows.enter("visits") for _ in range(3)]
    shadows.leave()

    assert taken == [True, True, False]
    assert dropped == ["visits"]
    assert shadows.enter("visits")


async def test_a_drain_waits_for_the_calls_in_flight():
    shadows = ShadowPool(2, lambda _: None)
    shadows.enter("visits")
    shadows.enter("visits")

    draining = asyncio.create_task(shadows.drain(60))
    await asyncio.sleep(0)
    shadows.leave()
    await asyncio.sleep(0)
    is_over_early = draining.done()
    shadows.leave()
    await draining

    assert not is_over_early
    assert len(shadows) == 0


async def test_a_drain_waits_no_longer_than_it_may_and_not_at_all_for_none():
    shadows = ShadowPool(2, lambda _: None)
    await shadows.drain(60)
    shadows.enter("visits")

    await shadows.drain(0.02)

    assert len(shadows) == 1
