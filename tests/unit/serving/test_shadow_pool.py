import asyncio

from understudy.serving.shadow_pool import ShadowPool


async def test_what_does_not_fit_is_dropped_and_named():
    dropped: list[str] = []
    shadows = ShadowPool(2, dropped.append)

    taken = [shadows.offer("visits", lambda: asyncio.sleep(0.01)) for _ in range(3)]

    assert taken == [True, True, False]
    assert dropped == ["visits"]
    await shadows.drain(1)
    assert shadows.offer("visits", lambda: asyncio.sleep(0))
    await shadows.drain(1)


async def test_a_drain_waits_for_what_ends_in_time_and_cancels_the_rest():
    ended: list[str] = []
    shadows = ShadowPool(2, lambda _: None)

    async def call(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        ended.append(name)

    shadows.offer("visits", lambda: call("quick", 0.01))
    shadows.offer("visits", lambda: call("slow", 60))
    await shadows.drain(0.1)

    assert ended == ["quick"]
    assert len(shadows) == 0
