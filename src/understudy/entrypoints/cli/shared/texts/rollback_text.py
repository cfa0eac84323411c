"""What a person can do where there is nothing to roll back, as commands."""

from shlex import quote

from understudy.ports.rollout.rollout_store import RollbackRecord

_RETIRED_BEFORE, _RETIRED = "nothing: version ", ", the champion before, is retired"
"""Around the version's text, as the database says why nothing was done."""


def restore_commands(done: RollbackRecord) -> tuple[str, ...]:
    """Return the commands, in their order, that put a retired champion back; empty where none is retired."""
    if not done.did.endswith(_RETIRED):
        return ()
    model, before = quote(done.model_name), quote(done.did.removeprefix(_RETIRED_BEFORE).removesuffix(_RETIRED))
    return f"understudy version restore {model} {before} --reason '…'", rollback_command(done.model_name)


def rollback_command(model_name: str) -> str:
    """Return the command that rolls a model back."""
    return f"understudy rollback {quote(model_name)} --reason '…'"


def abort_command(model_name: str) -> str:
    """Return the command that ends a rollout which has no share yet, and will."""
    return f"understudy rollout abort {quote(model_name)} --reason '…'"


def nothing_words(done: RollbackRecord) -> str:
    """Return why a rollback changes nothing, without the full stop."""
    return f"nothing to roll back{done.did.removeprefix('nothing')}"
