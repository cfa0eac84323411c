"""What was promised to callers, and how much of it is left."""

from tools.dashboards.panels import (
    CALLERS,
    GREEN,
    OF_MODEL,
    RED,
    SHARE_STEPS,
    SLOW_STEPS,
    YELLOW,
    Dashboard,
    Panel,
    Query,
    quantile,
    rate,
    stat,
)


def _burn(kind: str, budget: float) -> tuple[Query, ...]:
    windows = ("5m", "1h", "6h", "3d")
    return tuple(
        Query(f"model:predict_{kind}:ratio_rate{window}{{{OF_MODEL}}} / {budget}", f"over {window}")
        for window in windows
    )


SLO = Dashboard(
    "slo",
    "Understudy / SLO",
    "Two promises for each model over 30 days: 99.9 % of calls are answered, 99 % of calls take at most 100 ms.",
    (
        stat(
            "Error budget left",
            Query('model:predict_errors:budget_left_ratio{model="$model"}'),
            "Of 0.1 % failed calls in 30 days, or since Prometheus began.",
            unit="percentunit",
            width=6,
            minimum=None,
            steps=SHARE_STEPS,
            alerts=("PredictErrorBudgetBurn", "PredictErrorBudgetBurnSlow"),
        ),
        stat(
            "Latency budget left",
            Query('model:predict_slow:budget_left_ratio{model="$model"}'),
            "Of 1 % calls over 100 ms in 30 days, or since Prometheus began.",
            unit="percentunit",
            width=6,
            minimum=None,
            steps=SHARE_STEPS,
            alerts=("PredictLatencyBudgetBurn", "PredictLatencyBudgetBurnSlow"),
        ),
        stat(
            "Calls answered, 1 h",
            Query('1 - model:predict_errors:ratio_rate1h{model="$model"}'),
            "The promise is 99.9 %.",
            unit="percentunit",
            width=6,
            decimals=3,
            steps=((None, RED), (0.999, GREEN)),
        ),
        stat(
            "Calls within 100 ms, 1 h",
            Query('1 - model:predict_slow:ratio_rate1h{model="$model"}'),
            "The promise is 99 %.",
            unit="percentunit",
            width=6,
            decimals=2,
            steps=((None, RED), (0.99, GREEN)),
        ),
        Panel(
            "Error budget: how fast it burns",
            _burn("errors", 0.001),
            "1 uses it up in 30 days. A page comes at 14.4 (1 h and 5 m) or 6 (6 h and 30 m), a warning at 1 (3 d).",
            width=12,
            steps=((None, GREEN), (1.0, YELLOW), (14.4, RED)),
            alerts=("PredictErrorBudgetBurn", "PredictErrorBudgetBurnSlow"),
        ),
        Panel(
            "Latency budget: how fast it burns",
            _burn("slow", 0.01),
            "As beside, of calls over 100 ms.",
            width=12,
            steps=((None, GREEN), (1.0, YELLOW), (14.4, RED)),
            alerts=("PredictLatencyBudgetBurn", "PredictLatencyBudgetBurnSlow"),
        ),
        Panel(
            "Latency",
            tuple(
                Query(
                    quantile(share, "predict_duration_seconds", "model", f"{OF_MODEL},{CALLERS}"), f"p{share * 100:g}"
                )
                for share in (0.5, 0.9, 0.99, 0.999)
            ),
            "Inside the proxy, of all calls; an interpolation within the edges of the histogram.",
            unit="s",
            width=12,
            steps=SLOW_STEPS,
        ),
        Panel(
            "Calls by outcome",
            (Query(rate("predict_requests_total", "outcome", f"{OF_MODEL},{CALLERS}"), "{{outcome}}"),),
            "ok, fallback and invalid_input cost no budget.",
            unit="reqps",
            width=12,
            stacked=True,
        ),
    ),
    has_model=True,
    span="now-24h",
)
