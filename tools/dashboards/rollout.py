"""One screen while a rollout goes wrong."""

from tools.dashboards.checks import CHECKS
from tools.dashboards.panels import (
    CALLERS,
    ERROR_STEPS,
    FAILED,
    GREEN,
    LEADING,
    OF_MODEL,
    OK_BELOW_ONE,
    RED,
    SLOW_STEPS,
    YELLOW,
    Dashboard,
    Panel,
    Query,
    quantile,
    rate,
    stat,
)

ROLLOUT = Dashboard(
    "rollout",
    "Understudy / Rollout war room",
    "One screen while a rollout goes wrong: who has the traffic, is it worse, does everyone obey.",
    (
        stat(
            "Challenger's share",
            Query(f"max(challenger_weight_ratio{{{OF_MODEL}}})"),
            "As the proxies have it. 0 after a rollback.",
            unit="percentunit",
        ),
        stat(
            "Generations apart",
            Query(f"max(policy_generation{{{OF_MODEL}}} > 0) - min(policy_generation{{{OF_MODEL}}} > 0)"),
            "0: every proxy acts on the same policy.",
            steps=OK_BELOW_ONE,
            alerts=("PolicyGenerationSplit", "PolicyStale"),
        ),
        stat(
            "Last look",
            Query('time() - max(monitor_last_success_timestamp_seconds{exported_job="rollouts"})'),
            "How long ago a monitor last looked at rollouts.",
            unit="s",
            steps=((None, GREEN), (60.0, YELLOW), (300.0, RED)),
            alerts=("MonitorStalled",),
        ),
        stat(
            "Callers' failures",
            Query('model:predict_errors:ratio_rate5m{model="$model"}'),
            "What callers got, after fallbacks, over 5 minutes.",
            unit="percentunit",
            decimals=2,
            steps=ERROR_STEPS,
            alerts=("PredictErrorBudgetBurn", "RolledBackStillFailing"),
        ),
        stat(
            "Split by chance",
            Query(f"min(experiment_srm_p_value{{{OF_MODEL}}} {LEADING})"),
            "How likely a split of entities like this one is. Below 0.001 every comparison is void.",
            decimals=4,
            steps=((None, RED), (0.001, YELLOW), (0.01, GREEN)),
            alerts=("SampleRatioMismatch",),
        ),
        stat(
            "Oldest row not logged",
            Query("max(prediction_log_oldest_seconds)"),
            "Verdicts rest on the log: what is not in it yet is not judged.",
            unit="s",
            steps=((None, GREEN), (30.0, YELLOW), (300.0, RED)),
            alerts=("PredictionLogBehind", "PredictionLogDropping"),
        ),
        *CHECKS,
        Panel(
            "Calls by version",
            (Query(rate("predict_requests_total", "role, version", f"{OF_MODEL},{CALLERS}"), "{{role}} v{{version}}"),),
            "After a rollback the challenger's line must fall to 0 within a second or two.",
            unit="reqps",
            stacked=True,
            alerts=("SplitMismatch",),
        ),
        Panel(
            "Failures by version",
            (
                Query(
                    f"{rate('predict_requests_total', 'role, version', f'{OF_MODEL},{FAILED},{CALLERS}')}"
                    f" / {rate('predict_requests_total', 'role, version', f'{OF_MODEL},{CALLERS}')}",
                    "{{role}} v{{version}}",
                ),
            ),
            "Share of the version's own calls. Callers see less: the champion answers for a challenger that fails.",
            unit="percentunit",
            decimals=2,
            alerts=("RolledBack",),
        ),
        Panel(
            "p99 by version",
            (
                Query(
                    quantile(0.99, "predict_duration_seconds", "role, version", f"{OF_MODEL},{CALLERS}"),
                    "{{role}} v{{version}}",
                ),
            ),
            "Inside the proxy.",
            unit="s",
            steps=SLOW_STEPS,
        ),
        Panel(
            "Generation by proxy",
            (Query(f"max by (instance) (policy_generation{{{OF_MODEL}}})", "{{instance}}"),),
            "One line, or lines that meet within a second.",
            minimum=None,
            decimals=0,
            alerts=("PolicyGenerationSplit",),
        ),
        Panel(
            "Age of the policy by proxy",
            (Query('max by (instance) (policy_age_seconds{instance=~"$proxies"})', "{{instance}}"),),
            "Since Postgres last confirmed it. Over 60 s a rollback would not reach this proxy.",
            unit="s",
            steps=((None, GREEN), (60.0, RED)),
            alerts=("PolicyStale",),
        ),
        Panel(
            "What the rollout did",
            (
                Query(
                    f"sum by (to, reason) (increase(rollout_transitions_total{{{OF_MODEL}}}[$__rate_interval])) > 0",
                    "{{to}}: {{reason}}",
                ),
            ),
            "Transitions that the monitor made. What people order is in the audit: understudy audit list.",
            decimals=0,
        ),
        Panel(
            "Rollbacks",
            (
                Query(
                    f"sum by (trigger, reason) (increase(rollbacks_total{{{OF_MODEL}}}[$__range])) > 0",
                    "{{trigger}}: {{reason}}",
                ),
            ),
            "By whom and for what, in the time that is shown.",
            kind="bargauge",
            decimals=0,
            alerts=("RolledBack",),
        ),
        Panel(
            "Until a rollback is everywhere",
            (
                Query(
                    f"histogram_quantile(0.99, sum by (le) (rollback_duration_seconds_bucket{{{OF_MODEL}}}))",
                    "slowest",
                ),
            ),
            "From the decision to the last live proxy that confirmed it, since the monitor began. Edges: 0.5 to 60 s.",
            kind="stat",
            unit="s",
            steps=((None, GREEN), (5.0, YELLOW), (30.0, RED)),
            alerts=("PolicyGenerationSplit",),
        ),
        Panel(
            "Entities with an outcome",
            (Query(f"outcome_join_ratio{{{OF_MODEL}}} {LEADING}", "joined"),),
            "Of a rollout that declared an outcome: the share of entities that have one by now.",
            unit="percentunit",
            maximum=1,
            alerts=("OutcomesLate",),
        ),
        Panel(
            "Rows for the log",
            (Query(rate("prediction_log_rows_total", "outcome"), "{{outcome}}"),),
            "Dropped or rejected rows are missing from every verdict.",
            unit="wps",
            alerts=("PredictionLogDropping",),
        ),
    ),
    has_model=True,
    span="now-30m",
)
