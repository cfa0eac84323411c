"""What is drawn below a rollout's checks, and what its failing calls failed with."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.durations import moment
from understudy.entrypoints.charts.report import figure
from understudy.entrypoints.cli.rollout.charts import charts_of
from understudy.entrypoints.cli.rollout.failures_text import failures_line
from understudy.entrypoints.console.views.rollouts.seen import Failing
from understudy.ports.prediction_log.prediction_history import LoggedFailures
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutView
from understudy.rollout.history import RolloutHistory


class ChartsPart(NamedTuple):
    """The charts of a rollout."""

    read_at: str
    charts: tuple[str, ...]
    """Markup of ours, in which every text is escaped."""
    remarks: tuple[str, ...]
    failing: tuple[str, ...] | None
    """``None``: it is not known, since the log was not read in time; empty: no call failed."""
    is_final: bool
    """Whether the rollout was over by then: they stay as they are."""


def failing_of(drawn: ChartsPart) -> Failing | None:
    """Return what calls failed with by the time that charts were drawn; ``None``: the log was not read in time."""
    return None if drawn.failing is None else Failing(drawn.failing, drawn.read_at)


def charts_part(
    view: RolloutView, history: RolloutHistory, events: Sequence[RolloutEventRecord], failures: LoggedFailures | None
) -> ChartsPart:
    """Return the charts; without ``failures`` it is not known what calls failed with."""
    drawn = charts_of(view, history, events)
    failing = None if failures is None else failures_line(view.record.state.challenger, failures)
    return ChartsPart(
        moment(view.read_at),
        tuple(map(figure, drawn.charts)),
        drawn.remarks,
        None if failing is None else tuple(line.plain for line in failing),
        view.record.state.phase.is_final,
    )
