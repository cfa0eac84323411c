"""Whether rollouts are judged and people are told."""

from tools.dashboards.panels import (
    GREEN,
    GREY,
    LEADING,
    OK_BELOW_ONE,
    RED,
    YELLOW,
    YES_NO,
    Dashboard,
    Panel,
    Query,
    quantile,
    stat,
)

MONITOR = Dashboard(
    "monitor",
    "Understudy / Monitor",
    "Whether rollouts are judged, drift is looked for, and people are told.",
    (
        stat(
            "A monitor leads",
            Query("max(monitor_leader)"),
            "One of several leads, the others stand by.",
            words=YES_NO,
            alerts=("MonitorStalled",),
        ),
        stat(
            "Last look at rollouts",
            Query('time() - max(monitor_last_success_timestamp_seconds{exported_job="rollouts"})'),
            "Every UNDERSTUDY_MONITOR_TICK_SECONDS (5 s).",
            unit="s",
            steps=((None, GREEN), (60.0, YELLOW), (300.0, RED)),
            alerts=("MonitorStalled",),
        ),
        stat(
            "Partitions ahead",
            Query(f"max(partitions_ahead {LEADING})"),
            "Months after this one that PredictionLog has room for. Empty: no monitor leads, so none has counted them.",
            decimals=0,
            steps=((None, RED), (1.0, YELLOW), (2.0, GREEN)),
            alerts=("PartitionMissing",),
        ),
        stat(
            "Since the last archive",
            Query("time() - (max(archive_last_success_timestamp_seconds) > 0)"),
            "It runs each day. Empty: there is none.",
            unit="s",
            steps=((None, GREEN), (129_600.0, RED)),
            alerts=("ArchiveLate",),
        ),
        stat(
            "Archived months to be dropped",
            Query("max(archive_months_awaiting_drop)"),
            "Their rows are in files, and still in a table of Postgres.",
            decimals=0,
            steps=((None, GREEN), (1.0, YELLOW)),
            alerts=("LogMonthToBeDropped",),
        ),
        stat(
            "Open rollouts", Query(f"count(rollout_stage_ratio {LEADING}) or vector(0)"), "Of all models.", decimals=0
        ),
        stat(
            "Alerts that were refused, 1 h",
            Query('sum(increase(alert_deliveries_total{outcome="refused"}[1h])) or vector(0)'),
            "By PagerDuty or the webhook, for ever.",
            decimals=0,
            steps=OK_BELOW_ONE,
            alerts=("AlertDeliveryFailing",),
        ),
        Panel(
            "Who leads",
            (Query('max by (instance) (monitor_leader{instance!~"$proxies"})', "{{instance}}"),),
            "Exactly one.",
            kind="state-timeline",
            words=((0.0, "stands by", GREY), (1.0, "leads", GREEN)),
            alerts=("MonitorStalled",),
        ),
        Panel(
            "Since each job last succeeded",
            (Query("time() - max by (exported_job) (monitor_last_success_timestamp_seconds)", "{{exported_job}}"),),
            "rollouts and alerts: seconds; the others: up to a minute, partitions up to ten.",
            unit="s",
            steps=((None, GREEN), (300.0, YELLOW), (900.0, RED)),
            alerts=("MonitorStalled", "MonitorJobFailing"),
        ),
        Panel(
            "Duration of a run, p99",
            (Query(quantile(0.99, "monitor_tick_duration_seconds", "exported_job"), "{{exported_job}}"),),
            "Jobs follow each other: a slow one delays a rollback.",
            unit="s",
            steps=((None, GREEN), (5.0, YELLOW), (10.0, RED)),
        ),
        Panel(
            "Runs that failed",
            (Query("sum by (exported_job) (increase(monitor_failures_total[$__rate_interval]))", "{{exported_job}}"),),
            "The log says why: monitor.job_failed. Empty: none.",
            decimals=0,
            alerts=("MonitorJobFailing",),
        ),
        Panel(
            "Alerts by what became of them",
            (
                Query(
                    "sum by (channel, outcome) (increase(alert_deliveries_total[$__rate_interval]))",
                    "{{channel}}: {{outcome}}",
                ),
            ),
            "try_again is sent again; refused is given up.",
            decimals=0,
            alerts=("AlertDeliveryFailing",),
        ),
        Panel(
            "Notifications that wait",
            (
                Query(
                    f"max by (subscription) (notifications_waiting {LEADING})",
                    "{{subscription}}",
                ),
            ),
            "0 a moment after each event. Empty: there is no subscription.",
            decimals=0,
            alerts=("NotificationsNotDelivered",),
        ),
        Panel(
            "Notifications by what became of them",
            (
                Query(
                    "sum by (subscription, outcome) (increase(notification_deliveries_total[$__rate_interval]))",
                    "{{subscription}}: {{outcome}}",
                ),
            ),
            "try_again is sent again; given_up is not. Empty: there is no subscription.",
            decimals=0,
            alerts=("NotificationsNotDelivered",),
        ),
        Panel(
            "Questions to judges by what came of them",
            (
                Query(
                    "sum by (judge, outcome) (increase(judge_questions_total[$__rate_interval])) > 0",
                    "{{judge}}: {{outcome}}",
                ),
            ),
            "equal were not asked. Empty: no plan names a judge.",
            decimals=0,
            alerts=("JudgeUnanswered",),
        ),
        Panel(
            "Calls compared with the feature store",
            (Query("sum by (outcome) (increase(feature_skew_calls_total[$__rate_interval])) > 0", "{{outcome}}"),),
            "unread: it did not answer. Empty: monitors know no feature store, or no inputs are logged.",
            decimals=0,
            alerts=("SkewNotCompared",),
        ),
        Panel(
            "Transitions of rollouts",
            (
                Query(
                    "sum by (model, to, reason) (increase(rollout_transitions_total[$__rate_interval])) > 0",
                    "{{model}} {{to}}: {{reason}}",
                ),
            ),
            "What monitors did. Empty: nothing.",
            decimals=0,
            alerts=("RolledBack",),
        ),
        Panel(
            "Since the last outcome",
            (Query(f"outcome_lag_seconds {LEADING}", "{{model}}"),),
            "Of each model that has outcomes.",
            unit="s",
            steps=((None, GREEN), (86_400.0, RED)),
            alerts=("OutcomesLate",),
        ),
        Panel(
            "Servers without a wanted version",
            (Query(f"version_servers_missing {LEADING}", "{{model}} v{{version}}"),),
            "Of versions that agents load, by the leading monitor. Empty: all of them are where they are to be.",
            decimals=0,
            steps=((None, GREEN), (1.0, RED)),
            alerts=("VersionNotLoaded",),
        ),
        Panel(
            "Memory that model servers keep",
            (
                Query(
                    'max by (instance) (model_server_memory_bytes{what="residue"})'
                    ' / max by (instance) (model_server_memory_bytes{what="capacity"})',
                    "{{instance}}",
                ),
            ),
            "Beyond what the server takes by itself and its versions ever took together, of its capacity. Empty: no"
            " agent measures its server.",
            unit="percentunit",
            alerts=("ModelServerLeaking",),
        ),
        Panel(
            "Placements that were deleted",
            (
                Query(
                    "sum by (instance) (increase(placements_restored_total[$__rate_interval])) > 0",
                    "{{instance}}: written again",
                ),
                Query(
                    "sum by (instance) (increase(many_unplaced_total[$__rate_interval])) > 0",
                    "{{instance}}: most were gone",
                ),
            ),
            "By other sessions than the monitor's; of agents, times. Empty: none were.",
            decimals=0,
            alerts=("PlacementsDeleted",),
        ),
        Panel(
            "Sources that are not followed",
            (
                Query("max by (source) (source_away_seconds)", "{{source}}: a registry is away"),
                Query("max by (source) (source_waiting_seconds)", "{{source}}: its version waits"),
            ),
            "For how long. Empty: no process follows a model registry.",
            unit="s",
            steps=((None, GREEN), (600.0, RED)),
            alerts=("VersionSourceBehind",),
        ),
        Panel(
            "Worst drift by model",
            (
                Query(
                    f"max by (model) ((drift_score {LEADING})"
                    f" / on (model, version, subject, method) group_left () (drift_threshold {LEADING}))",
                    "{{model}}",
                ),
            ),
            "1 is what is tolerated. After each full hour.",
            steps=((None, GREEN), (1.0, RED)),
            alerts=("PredictionDrift", "InputDrift"),
        ),
    ),
)
