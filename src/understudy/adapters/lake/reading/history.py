"""``PredictionHistory`` over the lake: scores from its table; sampled inputs are in Postgres alone."""

from collections.abc import Sequence

from understudy.adapters.lake.reading import statements as sql
from understudy.adapters.lake.reading.question import Lake, Question, micros
from understudy.adapters.lake.reading.snapshot import Wanted
from understudy.core.prediction_log.hash_sample import is_whole, largest_hash
from understudy.core.prediction_log.input_sampling import InputSample
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.ports.prediction_log.prediction_history import LoggedScores, PredictionHistory


class LakeHistory:
    """Implements ``ports.PredictionHistory``.

    Args:
        lake: Has the scores.
        history: Has the inputs.
    """

    def __init__(self, lake: Lake, history: PredictionHistory) -> None:
        self._lake = lake
        self._history = history

    async def scores(self, version_id: int, since: float, until: float, at_most: int) -> LoggedScores:
        wanted = Wanted(sql.SCORE_COLUMNS, micros(since), micros(until), version_ids=[version_id])

        def asked(question: Question) -> LoggedScores:
            ((calls,),) = question.gather(wanted, sql.COUNT_SCORES, {"version": version_id})
            ratio = at_most / max(calls, at_most)
            values = {
                "version": version_id,
                "is_whole": is_whole(ratio),
                "largest": largest_hash(ratio),
                "last_bucket": ANALYSIS_BUCKETS - 1,
            }
            sampled = wanted._replace(columns=sql.SAMPLED_SCORE_COLUMNS)
            groups = question.gather(sampled, sql.SCORE_GROUPS, values)
            return LoggedScores([scores for (scores,) in groups], calls)

        async with self._lake.open() as steps:
            return await steps.do(asked)

    async def inputs(self, version_id: int, since: float, until: float, at_most: int) -> Sequence[InputSample]:
        return await self._history.inputs(version_id, since, until, at_most)
