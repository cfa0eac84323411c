"""Commands to type after the database has refused a change; its own hints are SQL, for users of its prompt."""

import re
from shlex import quote

_COMMANDS = {
    r"challenger_weight of (?P<model>.+) is a percentage from 0 to 100, not .+": (
        "understudy model set {model} --weight 0 --reason '…' sends the challenger nothing, --weight 100 everything"
    ),
    r"shadow_percent of (?P<model>.+) is a percentage from 0 to 100, not .+": (
        "understudy model set {model} --shadow-percent 100 --reason '…' shows the shadow everything"
    ),
    r"input_sample_percent of (?P<model>.+) is a percentage from 0 to 100, not .+": (
        "understudy model set {model} --input-sample-percent 0 --reason '…' stores no inputs"
    ),
    r"(?P<model>.+) needs a champion: champion_version is NULL": (
        "understudy model set {model} --champion VERSION --reason '…' names one of understudy version list {model}"
    ),
    # Only the operator knows which of both roles was meant: ending the other might end a test that is under way.
    r"version .+ of (?P<model>.+) cannot be (challenger|shadow) and (champion|challenger) at once": (
        "understudy model show {model} shows which version has which role; name another one, or give the role that it "
        "has to another, or to none, in the same command"
    ),
    r"(?P<model>.+) has no challenger to answer (?P<weight>\d+) % of its calls": (
        "understudy model set {model} --challenger VERSION --weight {weight} --reason '…' names one with its weight"
    ),
    r"guard of (?P<model>.+) is rollback, alert or off, not .+": (
        "understudy model set {model} --guard rollback --reason '…' has a share that does worse taken back"
    ),
    r".*violates check constraint .servingpolicy_on_drift_check.*": (
        "understudy model set MODEL --on-drift alert, or rollback: the monitor alerts, or takes the challenger back"
    ),
    r".*violates check constraint .servingpolicy_category_holdout_check.*": (
        "understudy model set MODEL --category-holdout 10: 0 to 50 % of a category that routes to the challenger stay"
    ),
    r"the salt of (?P<model>.+) is empty": (
        "understudy model set {model} --salt none --reason '…' is the formula without a salt"
    ),
    r"version (?P<version>.+) of (?P<model>.+) cannot be an arm and \w+ at once": (
        "understudy model set {model} --arm {version}=0 … ends its arm in the same command"
    ),
    r"at weight \d+ the challenger of (?P<model>.+) has the buckets .+ has (?P<first>\d+) to \d+": (
        "understudy model set {model} --weight {first} --reason '…' is the largest weight beside it"
    ),
    r"(?P<model>.+) has further arms, so no rollout can begin": (
        "understudy model set {model} --arm none --reason '…' ends their test"
    ),
    r"rollout \d+ of (?P<model>.+) is under way, so there are no further arms": (
        "understudy rollout wait {model} waits for its end, understudy rollback {model} --reason '…' takes it back"
    ),
    r"version .+ of (?P<model>.+) is the champion and cannot be retired": (
        "understudy model set {model} --champion VERSION --reason '…' gives its role to another version first"
    ),
    r"version .+ of (?P<model>.+) is the (?P<role>challenger|shadow) and cannot be retired": (
        "understudy model set {model} --{role} none --reason '…' takes its role away first"
    ),
    r"version (?P<version>.+) of (?P<model>.+) is an arm and cannot be retired": (
        "understudy model set {model} --arm {version}=0 --reason '…' ends its arm first"
    ),
    r"version .+ of (?P<model>.+) is kept warm by rollout \d+ and cannot be retired: .+": (
        "understudy rollout wait {model} --until finished waits until the monitor retires it"
    ),
    r"version (?P<version>.+) of (?P<model>.+) is retired and cannot be .+": (
        "understudy version restore {model} {version} brings it back first"
    ),
    r"(?P<model>.+) has no serving policy, so there is nothing to roll back": (
        "understudy model list shows the models there are"
    ),
}
"""By the database's whole message. A message without a command here keeps its hint in SQL."""


def next_command(message: str) -> str | None:
    """Return the command that helps after a refusal of the database, and what it does; ``None``: there is none."""
    for pattern, command in _COMMANDS.items():
        found = re.fullmatch(pattern, message)
        if found is not None:
            return command.format(**{name: quote(value) for name, value in found.groupdict().items()})
    return None
