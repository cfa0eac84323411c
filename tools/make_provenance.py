"""Writes where an image comes from: the predicate of a SLSA provenance (version 1, JSON), to be signed with the image.

    python tools/make_provenance.py IMAGE BASE > build/provenance.json

``IMAGE`` is the name with its tag, ``BASE`` the base image with its digest. The rest is said by the pipeline's own
variables, by git, and by the lock files. The signature says which pipeline wrote this; see SECURITY.md.

Source:
    https://slsa.dev/spec/v1.0/provenance for the fields.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD_TYPE = "urn:understudy:image:1"
LOCKS = ("requirements/build.txt", "requirements/image.txt", "requirements/uv.txt")
USAGE = 2


def provenance(
    image: str, base: str, commit: str, locks: Mapping[str, bytes], said: Mapping[str, str]
) -> dict[str, Any]:
    """Return the predicate.

    Args:
        image: Name and tag.
        base: ``name:tag@sha256:…``.
        commit: The full hash of the commit that was built.
        locks: The contents of the lock files by their paths.
        said: The pipeline's environment.

    Raises:
        ValueError: The base has no digest.
    """
    name, _, digest = base.partition("@sha256:")
    if not digest:
        raise ValueError(f"expected a base image with its digest, got {base!r}")
    source = f"{said['GITHUB_SERVER_URL']}/{said['GITHUB_REPOSITORY']}" if "GITHUB_REPOSITORY" in said else "local"
    run = f"{source}/actions/runs/{said['GITHUB_RUN_ID']}" if "GITHUB_RUN_ID" in said else "local"
    ref = said.get("GITHUB_REF", "")
    files = [{"uri": path, "digest": {"sha256": hashlib.sha256(text).hexdigest()}} for path, text in locks.items()]
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"image": image, "source": source, "ref": ref},
            "internalParameters": {"runner": said.get("RUNNER_OS", "local")},
            "resolvedDependencies": [
                {"uri": f"git+{source}@{ref}", "digest": {"gitCommit": commit}},
                {"uri": f"oci:{name}", "digest": {"sha256": digest}},
                *files,
            ],
        },
        "runDetails": {
            "builder": {"id": said.get("GITHUB_WORKFLOW_REF", "local")},
            "metadata": {"invocationId": run},
        },
    }


def main(arguments: list[str]) -> int:
    """Write the predicate of what is checked out here."""
    if len(arguments) != 2:  # noqa: PLR2004 - IMAGE and BASE
        sys.stderr.write(f"{__doc__}\n")
        return USAGE
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30
    )
    locks = {path: (ROOT / path).read_bytes() for path in LOCKS}
    found = provenance(*arguments, commit=head.stdout.strip(), locks=locks, said=os.environ)
    sys.stdout.write(f"{json.dumps(found, indent=2)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
