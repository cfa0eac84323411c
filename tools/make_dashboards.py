"""Writes the Grafana dashboards, deploy/grafana/dashboards/*.json; --check only says whether they are up to date.

Usage: python -m tools.make_dashboards [--check]
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.dashboards.grafana import document_of
from tools.dashboards.model import MODEL
from tools.dashboards.monitor import MONITOR
from tools.dashboards.overview import OVERVIEW
from tools.dashboards.panels import Dashboard
from tools.dashboards.platform import PLATFORM
from tools.dashboards.rollout import ROLLOUT
from tools.dashboards.slo import SLO

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "dashboards"
DASHBOARDS = (OVERVIEW, MODEL, ROLLOUT, PLATFORM, SLO, MONITOR)


def text_of(dashboard: Dashboard) -> str:
    """Return the text of a dashboard's file."""
    return json.dumps(document_of(dashboard), indent=2, ensure_ascii=False) + "\n"


def outdated(folder: Path = FOLDER) -> list[str]:
    """Return the names of files that are not what would be written, those that should not be there included."""
    wanted = {f"{dashboard.name}.json": text_of(dashboard) for dashboard in DASHBOARDS}
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--check"]:
        names = outdated()
        if names:
            print(f"{FOLDER} is out of date ({', '.join(names)}): run make dashboards", file=sys.stderr)
        return 1 if names else 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(text_of(dashboard), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
