"""Notifications: subscriptions to events of policies, rollouts, guards, drift, tests and versions, and their outbox."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0031"
down_revision = "0030"

# What the way down takes with it.
LOSES = (
    Loss("Subscription", "subscriptions to notifications"),
    Loss("Notification", "notifications, delivered and not"),
    Loss("SubscriptionAudit", "changes of subscriptions in the audit"),
)

# What it takes from the release before: these triggers catch every error of theirs and wait 200 ms for a lock at most.
# A statement whose statement_timeout ends within that time fails, as it would for any other wait.
NARROWS = tuple(
    f"trigger {trigger} may refuse what was done before"
    for trigger in (
        "alertoutbox_notify on alertoutbox",
        "experiment_notify_end on experiment",
        "experiment_notify_start on experiment",
        "loadedversion_notify on loadedversion",
        "loadedversion_notify_first on loadedversion",
        "policyaudit_notify on policyaudit",
        "registryaudit_notify on registryaudit",
        "rollout_notify_phase on rollout",
        "rollout_notify_start on rollout",
    )
)

# What operators notice of it.
NOTES = (
    "understudy subscription add has the monitors tell receivers of events; UNDERSTUDY_RECEIVERS has their addresses",
)


def upgrade() -> None:
    """Create the three tables, and the triggers that write notifications with the changes that they report."""
    run_script("0031_notifications.sql")


def downgrade() -> None:
    """Drop them."""
    run_script("0031_down.sql")
