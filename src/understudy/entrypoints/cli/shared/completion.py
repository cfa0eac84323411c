"""What a shell completes: names of models, asked of the registry within a second."""

from contextlib import redirect_stderr, suppress
from io import StringIO

SECONDS = 1.0


def model_names(incomplete: str) -> list[str]:
    """Return the models whose names begin so; none where the registry does not answer in time, and no word about it."""
    with suppress(Exception), redirect_stderr(StringIO()):
        from understudy.entrypoints.cli.shared.session import with_control_plane  # noqa: PLC0415 - at a tab alone

        found = with_control_plane(lambda control_plane: control_plane.registry.list_models(), seconds=SECONDS)
        return [model.model_name for model in found if model.model_name.startswith(incomplete)]
    return []
