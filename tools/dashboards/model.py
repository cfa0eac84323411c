"""One model, in full."""

from tools.dashboards.checks import CHECKS
from tools.dashboards.panels import (
    BY_CHALLENGER,
    CALLERS,
    FAILED,
    GREEN,
    LEADING,
    NO_FALLBACK,
    OF_MODEL,
    OK_BELOW_ONE,
    RED,
    SHARE_STEPS,
    SLOW_STEPS,
    YES_NO,
    Dashboard,
    Panel,
    Query,
    Row,
    increase,
    quantile,
    rate,
    stat,
)

MODEL = Dashboard(
    "model",
    "Understudy / Model",
    "Everything about one model.",
    (
        Row("Who answers, and how well"),
        Panel(
            "Roles",
            (Query(f"max by (champion, challenger, shadow) (policy_info{{{OF_MODEL}}} == 1)", instant=True),),
            "Versions by role, as the proxies see them. Two rows: proxies disagree.",
            kind="table",
            width=6,
            height=4,
            columns=(
                ("champion", "Champion", "string"),
                ("challenger", "Challenger", "string"),
                ("shadow", "Shadow", "string"),
            ),
        ),
        stat(
            "Champion ready",
            Query(f"1 - max(champion_unreachable{{{OF_MODEL}}})"),
            "Whether every proxy finds a model server of the champion that says it is ready.",
            words=YES_NO,
            alerts=("ModelUnavailable",),
        ),
        stat(
            "Generation",
            Query(f"max(policy_generation{{{OF_MODEL}}})"),
            "Of the policy; each change makes it one higher.",
            alerts=("PolicyGenerationSplit",),
        ),
        stat(
            "Calls",
            Query('model:predict_calls:rate5m{model="$model"}'),
            "What callers asked, over 5 minutes.",
            unit="reqps",
            width=5,
        ),
        stat(
            "Error budget left",
            Query('model:predict_errors:budget_left_ratio{model="$model"}'),
            "Of 0.1 % failed calls in 30 days. Below 0 the promise is broken.",
            unit="percentunit",
            steps=SHARE_STEPS,
            width=5,
            minimum=None,
            alerts=("PredictErrorBudgetBurn", "PredictErrorBudgetBurnSlow"),
        ),
        Panel(
            "Calls by role and outcome",
            (
                Query(
                    rate("predict_requests_total", "role, version, outcome", OF_MODEL),
                    "{{role}} v{{version}}: {{outcome}}",
                ),
            ),
            "A challenger's failure that the champion answered for is in both: a failure of its own, and a fallback.",
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Failures by role",
            (
                Query(
                    f"{rate('predict_requests_total', 'role, version', f'{OF_MODEL},{FAILED}')}"
                    f" / {rate('predict_requests_total', 'role, version', OF_MODEL)}",
                    "{{role}} v{{version}}",
                ),
            ),
            "Share of each version's own calls, those included that another version answered for.",
            unit="percentunit",
            decimals=2,
            alerts=("PredictErrorBudgetBurn", "RolledBack"),
        ),
        Panel(
            "p50 and p99 by role",
            (
                Query(
                    quantile(0.5, "predict_duration_seconds", "role, version", OF_MODEL), "{{role}} v{{version}} p50"
                ),
                Query(
                    quantile(0.99, "predict_duration_seconds", "role, version", OF_MODEL), "{{role}} v{{version}} p99"
                ),
            ),
            "Inside the proxy. The line is the objective for callers; a shadow delays no caller.",
            unit="s",
            steps=SLOW_STEPS,
            alerts=("PredictLatencyBudgetBurn",),
        ),
        Panel(
            "Split: set and seen",
            (
                Query(f"max(challenger_weight_ratio{{{OF_MODEL}}} + arms_weight_ratio{{{OF_MODEL}}})", "set"),
                Query(
                    f"{rate('predict_requests_total', 'model', f'{OF_MODEL},{BY_CHALLENGER}')}"
                    f" / {rate('predict_requests_total', 'model', f'{OF_MODEL},{NO_FALLBACK},{CALLERS}')}",
                    "seen",
                ),
            ),
            "Share of calls for the challenger and further arms. Seen differs by chance, and by busy entities.",
            unit="percentunit",
            alerts=("SplitMismatch",),
        ),
        Panel(
            "Fallbacks",
            (Query(f"{rate('fallbacks_total', 'reason', OF_MODEL)}", "{{reason}}"),),
            "Calls that the challenger failed and the champion answered; E503: not reached, E504: late. Empty: none.",
            unit="reqps",
            alerts=("RolledBack",),
        ),
        Panel(
            "Cache",
            (Query(rate("cache_requests_total", "result", OF_MODEL), "{{result}}"),),
            "Look-ups; versions that are not cached are not counted.",
            unit="reqps",
            stacked=True,
            alerts=("CacheErrors",),
        ),
        Row("What it answers"),
        *(
            Panel(
                f"Scores: {role}",
                (
                    Query(
                        increase("prediction_score_bucket", "le", f'{OF_MODEL},role="{role}"'),
                        "{{le}}",
                    ),
                ),
                "How many answers had which score. A band that moves is a drift, or other callers.",
                kind="heatmap",
                alerts=("PredictionDrift",),
            )
            for role in ("champion", "challenger", "shadow")
        ),
        *(
            Panel(
                f"Scores in the champion's tenths: {role}",
                (Query(f'sum by (up_to) (prediction_tenths{{{OF_MODEL},role="{role}"}} {LEADING})', "{{up_to}}"),),
                "In any unit: of the champion each band has a tenth of a day's calls. Unequal bands have moved.",
                kind="heatmap",
                has_bands=True,
                alerts=("PredictionDrift",),
            )
            for role in ("champion", "challenger")
        ),
        Panel(
            "Mean score by role",
            (
                Query(
                    f"{rate('prediction_score_sum', 'role, version', OF_MODEL)}"
                    f" / {rate('prediction_score_count', 'role, version', OF_MODEL)}",
                    "{{role}} v{{version}}",
                ),
            ),
            "Versions that see the same people should differ little.",
            minimum=None,
            alerts=("PredictionDrift",),
        ),
        Panel(
            "Drift against its limit",
            (
                Query(
                    f"(drift_score{{{OF_MODEL}}} {LEADING}) / on (model, version, subject, method) group_left ()"
                    f" (drift_threshold{{{OF_MODEL}}} {LEADING})",
                    "v{{version}} {{subject}} {{method}}",
                ),
            ),
            "1 is what is tolerated. After each full hour, of versions and inputs that have a baseline.",
            steps=((None, GREEN), (1.0, RED)),
            alerts=("PredictionDrift", "InputDrift", "FeatureMissing"),
        ),
        Panel(
            "Features served unlike the store",
            (
                Query(
                    f"max by (version, feature) (feature_skew_ratio{{{OF_MODEL}}} {LEADING})",
                    "v{{version}} {{feature}}",
                ),
            ),
            "Share of the compared calls that got another value than the feature store's, or none. 3 % is tolerated.",
            unit="percentunit",
            alerts=("FeatureSkew",),
        ),
        Panel(
            "Features the store lacks",
            (Query(rate("feature_missing_total", "feature", OF_MODEL), "{{feature}}"),),
            "Looked up and not there for that entity: the call takes the default, or gets 422.",
            unit="reqps",
            alerts=("FeatureMissing",),
        ),
        Row("Rollout"),
        *CHECKS,
        Row("Model servers and shadow"),
        Panel(
            "Calls at the model servers",
            (Query(f"sum by (version) (upstream_in_flight{{{OF_MODEL}}})", "v{{version}}"),),
            "Under way now. A line that only climbs: the server takes calls and answers none.",
            alerts=("ModelUnavailable",),
        ),
        Panel(
            "Replicas left out",
            (Query(f"max by (version) (replicas_ejected{{{OF_MODEL}}})", "v{{version}}"),),
            "Replicas that a proxy gives no calls now, because they failed or were overtaken. 0 is good.",
            decimals=0,
            steps=OK_BELOW_ONE,
            alerts=("ModelUnavailable",),
        ),
        Panel(
            "Hedges",
            (Query(rate("hedges_total", "outcome", OF_MODEL), "{{outcome}}"),),
            "Second calls to another replica: won (it answered first), lost, or refused. Empty: one replica.",
            unit="reqps",
        ),
        Panel(
            "Shadow calls",
            (
                Query(rate("predict_requests_total", "outcome", OF_MODEL + ',role="shadow"'), "{{outcome}}"),
                Query(rate("shadow_dropped_total", "model", OF_MODEL), "dropped"),
            ),
            "Never awaited by a caller. Dropped: too many were in flight.",
            unit="reqps",
            stacked=True,
            alerts=("ShadowDropping",),
        ),
        Panel(
            "Since the last outcome",
            (Query(f"outcome_lag_seconds{{{OF_MODEL}}} {LEADING}", "last outcome"),),
            "What happened afterwards, as callers report it.",
            unit="s",
            steps=((None, GREEN), (86_400.0, RED)),
            alerts=("OutcomesLate",),
        ),
        Panel(
            "Logged inputs",
            (Query(rate("input_samples_total", "outcome", OF_MODEL), "{{outcome}}"),),
            "Of entities that are sampled (input_sample_percent). Empty: none are.",
            unit="reqps",
        ),
    ),
    has_model=True,
)
