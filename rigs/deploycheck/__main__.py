"""``make check-deploy``: judges everything that deploys, and says what could not be judged here.

Exit status 0: no mistake was found; 1: one was, or with ``--strict`` a check could not run.
"""

import argparse
import sys
import time
from pathlib import Path

from rigs.deploycheck import compose, dockerfile, manifests, pipelines, release, watching
from rigs.deploycheck.findings import Check, ToolMissing

ROOT = Path(__file__).resolve().parents[2]
CHECKS = (
    Check("image: hadolint", dockerfile.check_hadolint),
    Check("image: our rules", dockerfile.check_our_rules),
    Check("compose: schema", compose.check_schema),
    Check("compose: our rules", compose.check_our_rules),
    Check("compose: what the profile obs mounts", compose.check_watching),
    Check("manifests: kustomize", manifests.check_builds),
    Check("manifests: schemas", manifests.check_schemas),
    Check("manifests: our policy", manifests.check_policy),
    Check("pipelines: schemas", pipelines.check_schemas),
    Check("pipelines: our rules", pipelines.check_our_rules),
    Check("pipelines: random draws", pipelines.check_random_draws),
    Check("pipelines: scans", release.check_scans),
    Check("release", release.check_release),
    Check("watching: rules", watching.check_rules),
    Check("watching: prometheus", watching.check_prometheus),
    Check("watching: alertmanager", watching.check_alertmanager),
    Check("watching: dashboards", watching.check_dashboards),
    Check("copies", watching.check_copies),
)


def run(root: Path, *, strict: bool) -> int:
    """Run every check, print what each found, and return the exit status."""
    began = time.monotonic()
    mistakes, left_out = 0, 0
    for check in CHECKS:
        try:
            found = check.run(root)
        except ToolMissing as reason:
            left_out += 1
            _say(f"! {check.name}: NOT CHECKED. {reason}")
            continue
        mistakes += len(found)
        _say(f"{'✖' if found else '✔'} {check.name}", *(f"    {finding}" for finding in found))
    seconds = time.monotonic() - began
    _say(f"{len(CHECKS) - left_out} checks in {seconds:.1f} s: {mistakes} mistakes, {left_out} checks left out")
    return int(mistakes > 0 or (strict and left_out > 0))


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


def main() -> None:
    """Run for the repository that this file is in."""
    parser = argparse.ArgumentParser("make check-deploy", description=__doc__)
    parser.add_argument("--strict", action="store_true", help="A check that cannot run is a mistake.")
    sys.exit(run(ROOT, strict=parser.parse_args().strict))


if __name__ == "__main__":
    main()
