"""The checks of an open rollout."""

from tools.dashboards.panels import (
    CHECK_WORDS,
    LEADING,
    OF_MODEL,
    Panel,
    Query,
)

CHECKS = (
    Panel(
        "Checks",
        (Query(f"canary_check_state{{{OF_MODEL}}} {LEADING}", "{{check}} v{{version}}"),),
        "What each check of the open rollout says. A fail is proven, and rolls back; latency a bit worse only holds.",
        kind="state-timeline",
        width=12,
        words=CHECK_WORDS,
        alerts=("RolledBack", "GuardFailed", "SampleRatioMismatch"),
    ),
    Panel(
        "Change against its limit",
        (
            Query(f'canary_check_value{{{OF_MODEL},check!="sample_ratio"}} {LEADING}', "{{check}} v{{version}}"),
            Query(f'canary_check_limit{{{OF_MODEL},check!="sample_ratio"}} {LEADING}', "{{check}} limit"),
        ),
        "Challenger over champion: 2 is twice as much; score_shift is in standard deviations. Dashed: tolerated.",
        width=12,
        alerts=("RolledBack",),
    ),
)
