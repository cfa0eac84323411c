"""Where this machine has Postgres' client."""

import shutil

from understudy.adapters.embedded.installations import find_installations


def find_psql() -> str | None:
    """Return a SQL prompt: the machine's, else the one beside the embedded Postgres."""
    if shutil.which("psql"):
        return "psql"
    found = (installation.binary("psql") for installation in find_installations() if installation.packaged)
    return next((path for path in found if shutil.which(path)), None)
