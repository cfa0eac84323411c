"""Agents load registered versions into model servers: what is to be where, what is, and whose endpoints those are."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0028"
down_revision = "0027"

# What the way down takes with it. Endpoints that agents made stay, as ones that people registered.
LOSES = (
    Loss("VersionLoading", "versions that agents are to load"),
    Loss("ModelServer", "model servers that agents run beside"),
    Loss("AgentLease", "leases of agents"),
    Loss("Placement", "decisions on which server loads what"),
    Loss("LoadedVersion", "records of what is loaded"),
    Loss("ModelEndpoint", "endpoints that agents keep, which then stay as they are", "source = 'agent'"),
    Loss("ProxyInstance", "up to which change proxies have read", "read_xid IS NOT NULL"),
)

# What it takes from the release before.
NARROWS = ()

# What operators notice of it.
NOTES = ("understudy serve agent loads versions into a model server; grant the new role understudy_agent to its login",)


def upgrade() -> None:
    """Create the tables of agents, and say of endpoints who keeps them."""
    run_script("0028_agents.sql")


def downgrade() -> None:
    """Drop them; endpoints stay."""
    run_script("0028_down.sql")
