"""How the demo's model servers and their agents are started: each server empty, with an agent that loads into it."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from understudy.adapters.embedded.loopback_ports import LOOPBACK
from understudy.entrypoints.demo.topology import FAULT, GROUP


class ServerPlace(NamedTuple):
    """Where one model server and its agent are."""

    port: int
    control_port: int
    stage: Path
    """Of its agent; the server loads from its folder ``models``."""

    @property
    def target(self) -> str:
        """As proxies reach it."""
        return f"{LOOPBACK}:{self.port}"


def server_arguments(place: ServerPlace) -> list[str]:
    """Return the interpreter's arguments for a model server's process."""
    options = {
        "--port": place.port,
        "--repository": place.stage / "models",
        "--control-port": place.control_port,
        "--fault": FAULT,
    }
    return ["-m", "understudy.entrypoints.modelserver", *(str(part) for option in options.items() for part in option)]


def agent_environment(server: str, place: ServerPlace, artifacts: Path) -> Mapping[str, str | None]:
    """Return the variables of the process of a server's agent."""
    return {
        "UNDERSTUDY_SERVER_NAME": server,
        "UNDERSTUDY_SERVER_GROUP": GROUP,
        "UNDERSTUDY_SERVER_TARGET": place.target,
        "UNDERSTUDY_SERVER_CONTROL": f"{LOOPBACK}:{place.control_port}",
        "UNDERSTUDY_SERVER_KIND": "understudy",
        "UNDERSTUDY_STAGE_DIR": str(place.stage),
        "UNDERSTUDY_ARTIFACT_ROOT": str(artifacts),
        # The bad version is to pass its cases, and is slow once they are asked.
        "UNDERSTUDY_VALIDATION": "cases",
        "UNDERSTUDY_METRICS_HOST": LOOPBACK,
        "UNDERSTUDY_AGENT_METRICS_PORT": "0",
    }
