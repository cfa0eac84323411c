"""Every model beside the others."""

from tools.dashboards.panels import (
    CALLERS,
    ERROR_STEPS,
    GREEN,
    HIT,
    LEADING,
    OK_BELOW_ONE,
    RED,
    SLOW_STEPS,
    YELLOW,
    YES_NO,
    Dashboard,
    Panel,
    Query,
    quantile,
    rate,
    stat,
)

OVERVIEW = Dashboard(
    "overview",
    "Understudy / Overview",
    "Is anything wrong, and with which model?",
    (
        stat(
            "Pages now",
            Query('count(ALERTS{alertstate="firing",severity="critical"}) or vector(0)'),
            "Alerts that page somebody. 0 is good.",
            steps=OK_BELOW_ONE,
        ),
        stat(
            "Warnings now",
            Query('count(ALERTS{alertstate="firing",severity="warning"}) or vector(0)'),
            "Alerts that page nobody.",
            steps=((None, GREEN), (1.0, YELLOW)),
        ),
        stat(
            "Proxies",
            Query("count(count by (instance) (policy_generation > 0))"),
            "Proxies that Prometheus can read. One that is missing here may still take calls.",
            steps=((None, RED), (1.0, YELLOW), (2.0, GREEN)),
        ),
        stat(
            "A monitor leads",
            Query("max(monitor_leader)"),
            "Without one nothing is judged, and nothing is rolled back.",
            words=YES_NO,
            alerts=("MonitorStalled",),
        ),
        stat("All calls", Query("sum(model:predict_calls:rate5m)"), "All models, over 5 minutes.", unit="reqps"),
        stat(
            "All calls that fail",
            Query(
                "sum(model:predict_errors:ratio_rate5m * model:predict_calls:rate5m) / sum(model:predict_calls:rate5m)"
            ),
            "All models, over 5 minutes. The promise is 0.1 %.",
            unit="percentunit",
            decimals=2,
            steps=ERROR_STEPS,
            alerts=("PredictErrorBudgetBurn",),
        ),
        Panel(
            "Models",
            (
                Query("model:predict_calls:rate5m", instant=True),
                Query("model:predict_errors:ratio_rate5m", instant=True),
                Query("model:predict_errors:budget_left_ratio", instant=True),
                Query(
                    quantile(0.99, "predict_duration_seconds", "model", CALLERS).replace("$__rate_interval", "5m"),
                    instant=True,
                ),
                Query("max by (model) (challenger_weight_ratio + arms_weight_ratio)", instant=True),
                Query("1 - max by (model) (champion_unreachable)", instant=True),
                Query("max by (model) (policy_generation)", instant=True),
            ),
            "One row for each model. The budget is what is left of 0.1 % failed calls in 30 days.",
            kind="table",
            width=24,
            height=9,
            columns=(
                ("model", "Model", "string"),
                ("Value #A", "Calls", "reqps"),
                ("Value #B", "Failed", "percentunit"),
                ("Value #C", "Budget left", "percentunit"),
                ("Value #D", "p99", "s"),
                ("Value #E", "Challenger's share", "percentunit"),
                ("Value #F", "Champion ready", "bool_yes_no"),
                ("Value #G", "Generation", "none"),
            ),
        ),
        Panel("Calls", (Query("model:predict_calls:rate5m", "{{model}}"),), "What callers asked.", unit="reqps"),
        Panel(
            "Calls that fail",
            (Query("model:predict_errors:ratio_rate5m", "{{model}}"),),
            "Without requests that their callers must correct. A page begins at the upper line (14.4 budgets).",
            unit="percentunit",
            decimals=2,
            steps=ERROR_STEPS,
            alerts=("PredictErrorBudgetBurn", "ModelUnavailable"),
        ),
        Panel(
            "p99",
            (Query(quantile(0.99, "predict_duration_seconds", "model", CALLERS), "{{model}}"),),
            "Inside the proxy. The line is the promise: 99 % of calls within 100 ms.",
            unit="s",
            steps=SLOW_STEPS,
            alerts=("PredictLatencyBudgetBurn",),
        ),
        Panel(
            "Open rollouts",
            (Query(f"rollout_stage_ratio {LEADING}", "{{model}}"),),
            "The share that the step of an open rollout gives the challenger. Empty: there is none.",
            unit="percentunit",
            maximum=1,
        ),
        Panel(
            "Rollbacks",
            (
                Query(
                    "sum by (model, trigger, reason) (increase(rollbacks_total[$__rate_interval])) > 0",
                    "{{model}}: {{trigger}}, {{reason}}",
                ),
            ),
            "Rollouts that were taken back. Empty: none was.",
            decimals=0,
            alerts=("RolledBack", "RolledBackStillFailing"),
        ),
        Panel(
            "Cache hits",
            (
                Query(
                    f"{rate('cache_requests_total', 'model', HIT)} / {rate('cache_requests_total', 'model')}",
                    "{{model}}",
                ),
            ),
            "Share of look-ups that the cache answers; of models whose versions are cached.",
            unit="percentunit",
            maximum=1,
            alerts=("CacheErrors",),
        ),
    ),
)
