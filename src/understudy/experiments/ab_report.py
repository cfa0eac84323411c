"""Is B better than A? Everything that is known of it now, and what the test says."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from understudy.core.experiments.ab import AbPlan, AbState, AbVerdict, Interval, Metric, judge
from understudy.core.statistics.difference import Difference, compare
from understudy.core.statistics.rank_tests import RankComparison, compare_ranks
from understudy.core.statistics.sample_ratio import SampleRatio, sample_ratio
from understudy.core.statistics.sample_size import (
    ALPHA,
    Effect,
    Forecast,
    when_known,
)
from understudy.errors import RegistryUnavailable
from understudy.experiments.ab_arms import Arms, compare_arms, count_arms, rejected_beside, split_of
from understudy.experiments.ab_intervals import SLICES, IntervalAt, any_time, timeline, usual_plan
from understudy.experiments.ab_plan import no_outcomes_sentence, planned_inflation
from understudy.experiments.ab_quantiles import Quantiles, quantiles_of
from understudy.experiments.ab_scores import ScoreComparison, compare_scores
from understudy.experiments.attribution import (
    ArmCounts,
    Period,
    arms_of,
    began,
    counts_of,
    entry_epochs,
    epochs_of,
    fullest_epoch,
    periods,
    values_of,
)
from understudy.experiments.declared_rows import result_to_json
from understudy.experiments.declared_tests import (
    DeclaredTest,
    MetricChoice,
    Wanted,
    with_interim_analysis,
)
from understudy.experiments.declaring import AbQuestion, Found, find_test
from understudy.ports.experiments.experiment_log import (
    NO_SCORES,
    ArmScores,
    Entered,
    EntityGroup,
    EntityGroups,
    EntityQuery,
    ExperimentLog,
    Observed,
)
from understudy.ports.experiments.experiment_store import ExperimentStore

_ATTEMPTS = 3
_NO_SHARE = "No traffic: B had no share of the calls in this time, or A had none."
_NO_TRAFFIC = "No traffic: no entity met either version in this time while both had a share."
_UNDECLARED = (
    "Not decided: no test of {metric} was declared, so the interval holds however often one looks, and decides nothing."
)


class NoAnswer(StrEnum):
    """Why nothing can be compared: neither good nor bad."""

    NO_TRAFFIC = "no_traffic"
    NO_OUTCOMES = "no_outcomes"


class AbReport(NamedTuple):
    """What is known; what there are no data for is ``None``, and the sentence says why."""

    state: AbState | NoAnswer
    sentence: str
    found: Found
    since: float | None
    until: float
    wanted: Wanted
    choice: MetricChoice
    is_share: bool = True
    a: ArmCounts | None = None
    b: ArmCounts | None = None
    difference: Difference | None = None
    interval: Interval | None = None
    p_value: float | None = None
    fraction: float = 0.0
    """The information in, of the planned."""
    ratio: SampleRatio | None = None
    split: Sequence[Period] = ()
    forecast: Forecast | None = None
    ranks: RankComparison | None = None
    """Of the metric, in the fullest period."""
    scores: ScoreComparison | None = None
    timeline: Sequence[IntervalAt] = ()
    sampled_ratio: float = 1.0
    """Share of the entities that was looked at."""
    alpha: float = ALPHA
    """Chance that ``interval`` is wrong: less than the whole where a declared test shares it with others."""
    arms: Arms | None = None
    """All arms of the split, corrected over them; ``None`` with one version beside the champion."""
    quantiles: Quantiles | None = None
    """Where they were asked for; ``None`` also after a mismatch, and of outcomes that there are none of."""
    is_look_due: bool = False
    """Whether a look waits to be taken, in a report that takes none."""


async def report_ab(
    log: ExperimentLog,
    store: ExperimentStore,
    question: AbQuestion,
    *,
    with_timeline: bool = False,
    takes_looks: bool = True,
) -> AbReport:
    """Return what is known now. When a declared look is due it is taken, and stored before it is told.

    Without ``takes_looks`` nothing is stored: a look that is due is said to be, and what it would find is not told.

    Raises:
        NotRegistered: As :func:`find_test`.
        RegistryUnavailable, MigrationNeeded: As the log and the store.
    """
    for _ in range(_ATTEMPTS):
        found = await find_test(log, store, question.model_name, question.metric, question.version_id)
        test = found.test
        rejected = await rejected_beside(store, test) if test is not None else 0
        report, verdict = await _report(log, found, question, rejected, with_timeline=with_timeline)
        if test is None or not test.is_open or verdict is None or not verdict.is_look:
            return report
        if not takes_looks:
            return _before_look(report, test, rejected)
        after = with_interim_analysis(test, verdict, report.difference, question.now)
        if await store.record(test.record, result_to_json(after), ends=not after.is_open):
            return report._replace(found=found._replace(test=after))
        # Another report took an interim analysis meanwhile: judge again, after that one.
    raise RegistryUnavailable(f"the test changed during each of {_ATTEMPTS} looks", hint="Ask again.")


def _before_look(report: AbReport, test: DeclaredTest, rejected: int) -> AbReport:
    """Return a report without what an interim analysis that is due would say."""
    number, looks = len(test.looks) + 1, test.plan.looks
    sentence = f"Not decided: look {number} of {looks} is due, and what it finds is not told before it is taken."
    difference, plan = report.difference, test.plan.judged(rejected)
    interval = None if difference is None else any_time(difference, plan)
    return report._replace(
        state=AbState.UNDECIDED, sentence=sentence, interval=interval, p_value=None, is_look_due=True
    )


class _Data(NamedTuple):
    """What a report is computed from."""

    groups: Sequence[EntityGroup]
    split: Sequence[Period]
    query: EntityQuery
    test: DeclaredTest | None
    rejected: int
    """Tests beside this one that found a difference, and left their share of alpha."""

    def plan_for(self, difference: Difference | None, wanted: Wanted) -> AbPlan:
        """Return the declared plan, else the one that an interval is drawn for."""
        return self.test.plan.judged(self.rejected) if self.test is not None else usual_plan(difference, wanted)


async def _report(
    log: ExperimentLog, found: Found, question: AbQuestion, rejected: int, *, with_timeline: bool
) -> tuple[AbReport, AbVerdict | None]:
    test = _test_that_counts(found)
    choice, wanted = (test.plan.choice, test.plan.wanted) if test is not None else (question.choice, question.wanted)
    since = test.record.started_at if test is not None else question.since
    if since is None:
        since = began(found.allocations, found.champion_id, found.challenger_id)
    report = AbReport(NoAnswer.NO_TRAFFIC, _NO_SHARE, found, since, question.now, wanted, choice)
    split = periods(found.allocations, found.champion_id, found.challenger_id)
    if since is None or not split:
        return report, None
    facts = await log.outcome_facts(question.model_name, question.metric, since - choice.within_seconds, question.now)
    is_share = test.plan.is_share if test is not None else facts.is_share
    query = EntityQuery(
        model_name=question.model_name,
        metric=question.metric,
        champion_id=found.champion_id,
        challenger_id=found.challenger_id,
        epochs=epochs_of(split),
        since=since,
        until=question.now,
        within_seconds=choice.within_seconds,
        is_share=is_share and not choice.per_call,
        per_call=choice.per_call,
        slices=SLICES,
    )
    entities, scores = await _entities(log, query, split, with_scores=bool(facts.events))
    if not entities.groups:
        return report._replace(sentence=_NO_TRAFFIC), None
    report = report._replace(
        state=NoAnswer.NO_OUTCOMES,
        sentence=f"N{no_outcomes_sentence(question.model_name, question.metric, facts.known_names)[1:]}.",
        is_share=is_share,
        a=counts_of(entities.groups, is_b=False),
        b=counts_of(entities.groups, is_b=True),
        ratio=sample_ratio(entry_epochs(entities.groups, split)),
        split=split,
        sampled_ratio=entities.entities / entities.total,
    )
    all_arms = split_of(found, split)
    if all_arms is not None:
        report = report._replace(arms=await count_arms(log, query, all_arms))
    has_values = bool(facts.events) or question.quantiles is Observed.LATENCY
    if question.quantiles is not None and has_values and not _is_mismatch(report):
        found_quantiles = await quantiles_of(log, query, split, question.quantiles, is_share=is_share)
        report = report._replace(quantiles=found_quantiles)
    if not facts.events:
        return report, None
    data = _Data(entities.groups, split, query, test, rejected)
    report, verdict = _judged(report, data)
    report = report._replace(
        arms=await _compared_arms(log, report, data),
        ranks=_ranks(data),
        scores=compare_scores(scores),
        timeline=timeline(data.groups, split, query, data.plan_for(report.difference, wanted)) if with_timeline else (),
    )
    return report, verdict


async def _entities(
    log: ExperimentLog, query: EntityQuery, split: Sequence[Period], *, with_scores: bool
) -> tuple[EntityGroups, ArmScores]:
    """Return the entities, and the scores of those that came in the fullest period."""

    def fullest(entered: Sequence[Entered]) -> int:
        return fullest_epoch(entry_epochs(entered, split))

    return await log.entities_and_scores(query, fullest) if with_scores else (await log.entities(query), NO_SCORES)


def _is_mismatch(report: AbReport) -> bool:
    of_two = report.ratio is not None and report.ratio.is_mismatch
    return of_two or (report.arms is not None and report.arms.ratio.is_mismatch)


def _test_that_counts(found: Found) -> DeclaredTest | None:
    """Return the test if it is open or was decided; one that was ended by hand says nothing."""
    test = found.test
    return test if test is not None and (test.is_open or test.decision is not None) else None


def _judged(report: AbReport, data: _Data) -> tuple[AbReport, AbVerdict]:
    """Return the report with what the test says, and that."""
    test, choice = data.test, report.choice
    difference = compare(*arms_of(data.groups, data.split))
    plan = data.plan_for(difference, report.wanted)
    looks = [look.fraction for look in test.looks] if test is not None and test.is_open else []
    ratio = sample_ratio(entry_epochs(data.groups, data.split))
    verdict = judge(difference, plan, Metric(report.is_share, choice.higher_is_better), ratio, looks)
    if report.arms is not None and report.arms.ratio.is_mismatch and verdict.state is not AbState.INVALID:
        verdict = AbVerdict(AbState.INVALID, report.arms.ratio.sentence)
    if test is not None and test.decision is not None:
        verdict = verdict._replace(state=test.decision.state, sentence=test.decision.sentence, is_look=False)
    elif test is None and verdict.state not in (AbState.INVALID, AbState.TOO_EARLY):
        verdict = AbVerdict(AbState.UNDECIDED, _UNDECLARED.format(metric=data.query.metric), fraction=verdict.fraction)
    has_interval = difference is not None and verdict.state not in (AbState.INVALID, AbState.TOO_EARLY)
    judged = report._replace(
        state=verdict.state,
        sentence=verdict.sentence,
        difference=difference,
        interval=(verdict.interval or any_time(difference, plan)) if has_interval and difference else None,
        p_value=verdict.p_value,
        fraction=verdict.fraction,
        ratio=ratio,
        alpha=plan.alpha,
    )
    waits = verdict.state in (AbState.UNDECIDED, AbState.TOO_EARLY)
    return (judged._replace(forecast=_forecast(judged, data)) if waits else judged), verdict


def _forecast(report: AbReport, data: _Data) -> Forecast | None:
    difference, test = report.difference, data.test
    if difference is None or report.a is None or report.b is None or report.sampled_ratio < 1:
        return None
    amount = test.plan.difference if test is not None else report.wanted.difference(difference.value_a)
    if not amount:
        return None
    effect = Effect(amount, difference.variance_a, difference.variance_b)
    return when_known(
        effect,
        report.wanted.words(is_share=report.is_share),
        (difference.entities_a, difference.entities_b),
        (report.a.recent, report.b.recent),
        1.0 if test is None else planned_inflation(effect, test.plan.looks, 1 + len(test.plan.beside) - data.rejected),
    )


async def _compared_arms(log: ExperimentLog, report: AbReport, data: _Data) -> Arms | None:
    """Return the arms with what each says; only counted where the split is not the one that was set."""
    if report.arms is None or report.state is AbState.INVALID:
        return report.arms

    def plan_of(difference: Difference) -> AbPlan:
        return data.plan_for(difference, report.wanted)

    return await compare_arms(log, data.query, report.found, report.arms, own=report.difference, plan_of=plan_of)


def _ranks(data: _Data) -> RankComparison | None:
    """Compare in the fullest period: ranks cannot be weighted against a ramp."""
    epoch = fullest_epoch(entry_epochs(data.groups, data.split))
    return compare_ranks(values_of(data.groups, epoch, is_b=False), values_of(data.groups, epoch, is_b=True))
