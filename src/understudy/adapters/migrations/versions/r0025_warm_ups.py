"""Proxies warm up versions whose model servers only they reach: what they are asked, and what they found."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0025"
down_revision = "0024"

# What the way down takes with it; all of it is of the last hour.
LOSES = (
    Loss("WarmUpRequest", "warm-ups that proxies were asked for"),
    Loss("WarmUpAnswer", "what proxies found in a warm-up"),
    Loss("ProxyInstance", "which proxies answer warm-ups", "answers_warm_ups"),
)

# What it takes from the release before.
NARROWS = ()

# What operators notice of it.
NOTES = ("a version whose model servers only proxies reach rolls out once each live proxy has found it ready",)


def upgrade() -> None:
    """Create requests and answers, and say which proxies take part."""
    run_script("0025_warm_ups.sql")


def downgrade() -> None:
    """Drop them."""
    run_script("0025_down.sql")
