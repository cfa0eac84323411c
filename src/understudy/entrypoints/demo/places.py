"""Where everything of a running demo is: for programs with its passwords, for the screen without."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from understudy.adapters.embedded.loopback_ports import LOOPBACK
from understudy.core.connection_urls import without_password
from understudy.entrypoints.demo.processes import Child
from understudy.entrypoints.demo.topology import UNTOUCHED, Standing
from understudy.registry.console_link import console_link, signing_secret


@dataclass(slots=True)
class Demo:
    """Where everything is."""

    state_dir: Path
    database_url: str = ""
    pass_file: Path | None = None
    """Where the embedded Postgres' password is."""
    redis_url: str | None = None
    proxy_port: int = 0
    grpc_port: int = 0
    metrics_port: int = 0
    monitor_port: int = 0
    """Where the monitor's metrics are."""
    console_port: int = 0
    model_servers: dict[str, str] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)
    credential: str | None = None
    """What callers send after ``Authorization: Bearer``, when the proxy asks for it. The registry has its hash only."""
    console_key: str = ""
    """What an operator signs in with at the console. The registry has its hash only."""
    console_secret: str = ""
    """What the console signs its sessions with."""
    standing: Standing = UNTOUCHED
    """How the model of the scenario stands."""
    has_usual_port: bool = True
    """Whether the proxy has the port that was asked for, or the usual one."""

    @property
    def shown_database_url(self) -> str:
        """The database's URL without a password; clients read that of the embedded Postgres from its file."""
        shown = without_password(self.database_url)
        return shown if self.pass_file is None else f"{shown}?passfile={quote(str(self.pass_file))}"

    @property
    def shown_redis_url(self) -> str | None:
        """The cache's URL without its password."""
        return None if self.redis_url is None else without_password(self.redis_url)

    @property
    def proxy_url(self) -> str:
        """Where predict calls go."""
        return f"http://{LOOPBACK}:{self.proxy_port}"

    @property
    def grpc_target(self) -> str:
        """Where calls by gRPC go."""
        return f"{LOOPBACK}:{self.grpc_port}"

    @property
    def console_url(self) -> str:
        """Where the operator console is."""
        return f"http://{LOOPBACK}:{self.console_port}"

    def console_link(self) -> str:
        """Return a new link that signs a browser in at the console, once and within a minute."""
        key_id, _, _ = self.console_key.partition(".")
        link = console_link(signing_secret(self.console_secret), key_id, time.time())
        return f"{self.console_url}/login?once={link}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus reads."""
        return f"http://{LOOPBACK}:{self.metrics_port}/metrics"

    @property
    def monitor_metrics_url(self) -> str:
        """Where Prometheus reads the monitor's metrics."""
        return f"http://{LOOPBACK}:{self.monitor_port}/metrics"

    def document(self) -> dict[str, Any]:
        """Return what programs need to know."""
        return {
            "proxy": self.proxy_url,
            "grpc": self.grpc_target,
            "console": self.console_url,
            "console_key": self.console_key,
            "metrics": self.metrics_url,
            "monitor_metrics": self.monitor_metrics_url,
            "database_url": self.database_url,
            "redis_url": self.redis_url,
            "model_servers": self.model_servers,
            "pids": self.pids,
            "state_dir": str(self.state_dir),
            **({} if self.credential is None else {"credential": self.credential}),
        }
