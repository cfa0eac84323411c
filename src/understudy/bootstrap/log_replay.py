"""What replays logged inputs, opened for the length of a command or of an act."""

import time
from collections.abc import Callable

from understudy.bootstrap.session import ANSWER_SECONDS, Session, session_of
from understudy.bootstrap.upstream.backends import connector_of
from understudy.experiments.log_replay import ReplayFinding, ReplayWanted, question_of, replay_calls
from understudy.settings import Settings


async def replay_log(settings: Settings, wanted: ReplayWanted, on_calls: Callable[[int, int], None]) -> ReplayFinding:
    """Replay, telling ``on_calls`` how many are over, of how many; raises as ``question_of`` and ``replay_calls``."""
    async with session_of(settings) as session:
        return await replay_in(session, settings, wanted, on_calls)


async def replay_in(
    session: Session, settings: Settings, wanted: ReplayWanted, on_calls: Callable[[int, int], None]
) -> ReplayFinding:
    """Replay likewise, within a session that is open."""
    question = await question_of(session.registry, wanted)
    history = session.history(min(ANSWER_SECONDS, wanted.within_seconds))
    return await replay_calls(question, history, connector_of(settings), time.monotonic, on_calls)
