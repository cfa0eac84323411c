"""${message}.

Expand first, contract in a later release: the code before this migration and the code after it both run against the
schema that it leaves.
"""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}

# What the way down takes with it, each a Loss(table, what, where); db downgrade asks before it goes.
LOSES = ()
# What it takes from the release before: empty, unless this is the contracting release. A test compares it with the catalogue.
NARROWS = ()


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
