"""A rolling change: the next version is loaded everywhere, becomes champion, and the oldest one is unloaded."""

from functools import partial

from e2e.stack import sql

from rigs.lifecycle.stack import ACTOR, LABELS, MODEL, LifecycleStack, patiently, until_available

_CHAMPION = "UPDATE ServingPolicy SET champion_version = $2 WHERE model_name = $1"


def versions_of(number: int) -> tuple[str, str]:
    """Return the version that goes in the change of this number, and the one that becomes champion."""
    return LABELS[(number - 1) % len(LABELS)], LABELS[(number + 1) % len(LABELS)]


async def change_champion(stack: LifecycleStack, number: int) -> None:
    """Make the change of this number, whatever is killed meanwhile; the one before is over."""
    oldest, new = versions_of(number)
    await patiently(lambda: stack.loading.load(MODEL, new, ACTOR, group_name=None, seconds=None))
    await until_available(stack, new)
    await patiently(lambda: sql(stack.url, _CHAMPION, MODEL, stack.ids[new]))
    # What was wanted of it as the next champion; its role is what keeps it loaded now.
    for label in (new, oldest):
        await patiently(partial(_want_no_more, stack, label))


async def _want_no_more(stack: LifecycleStack, label: str) -> None:
    await sql(stack.url, "UPDATE VersionLoading SET wanted_until = NULL WHERE model_version_id = $1", stack.ids[label])
