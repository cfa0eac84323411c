"""A real Prometheus and a real Alertmanager with the committed configuration, but for addresses, secrets and clocks."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from understudy.adapters.embedded.loopback_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
READY_SECONDS = 60.0
Labels = Mapping[str, str]


def program(*names: str) -> str:
    """Return the path of a program by the first of its names that is installed; else skip, and say so loudly."""
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    pytest.skip(
        f"NOT CHECKED: there is no {names[0]} on this machine, so nobody has tried the alerts and dashboards. "
        "On Debian: apt-get install prometheus prometheus-alertmanager, then make check-watch"
    )


class Series(NamedTuple):
    """One series of an answer: points of time and value."""

    labels: Labels
    points: Sequence[tuple[float, float]]

    @property
    def last(self) -> float:
        return self.points[-1][1]


class Prometheus:
    """A server that runs until the end of :func:`a_prometheus`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expr: str) -> list[Series]:
        """Return what an expression comes to now."""
        found = self._get("query", query=expr)["result"]
        return [Series(one["metric"], [_point(one["value"])]) for one in found]

    def range(self, expr: str, start: float, end: float, step: float = 1.0) -> list[Series]:
        """Return what an expression came to at each step."""
        found = self._get("query_range", query=expr, start=str(start), end=str(end), step=str(step))["result"]
        return [Series(one["metric"], [_point(pair) for pair in one["values"]]) for one in found]

    def _get(self, what: str, **parameters: str) -> Any:
        address = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=20) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{parameters['query']}: {refused.read().decode()}") from None


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


@contextmanager
def a_prometheus(
    folder: Path,
    targets: Mapping[str, Sequence[str]],
    *,
    alertmanager: str | None = None,
    seconds: int | None = None,
    holds_seconds: int | None = None,
) -> Iterator[Prometheus]:
    """Run Prometheus with the committed configuration and rules.

    Args:
        folder: For its files.
        targets: ``host:port`` by the job's name, in the place of the names that are looked up.
        alertmanager: Its ``host:port``, if it is to be told.
        seconds: The interval of everything, in the place of 10 s and of the 5 minutes of what looks back days.
        holds_seconds: How long that has to hold which is to hold for 5 minutes.
    """
    binary = program("prometheus")
    folder.mkdir()
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert {job["job_name"] for job in config["scrape_configs"]} == targets.keys()
    for job in config["scrape_configs"]:
        del job["dns_sd_configs"]
        job["static_configs"] = [{"targets": list(targets[job["job_name"]])}]
    config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []
    if seconds is not None:
        config["global"] |= {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s"}
    (folder / "rules").mkdir()
    for path in RULES:
        text = path.read_text(encoding="utf-8")
        if seconds is not None:
            text = re.sub(r"\binterval: (10s|5m)\n", f"interval: {seconds}s\n", text)
            text = text.replace("[30d:5m]", f"[10m:{seconds}s]")
        if holds_seconds is not None:
            text = text.replace("for: 5m\n", f"for: {holds_seconds}s\n")
        (folder / "rules" / path.name).write_text(text, encoding="utf-8")
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    arguments = [
        binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=35d", "--log.level=warn",
    ]  # fmt: skip
    with running(arguments, folder / "prometheus.log", f"http://127.0.0.1:{port}/-/ready"):
        yield Prometheus(f"http://127.0.0.1:{port}")


@contextmanager
def an_alertmanager(folder: Path, receiver_url: str, routing_key: str) -> Iterator[str]:
    """Run Alertmanager with the committed configuration; whom it tells is at ``receiver_url``. Gives its address."""
    binary = program("alertmanager", "prometheus-alertmanager")
    folder.mkdir()
    (folder / "pagerduty-routing-key").write_text(routing_key)
    (folder / "channel-webhook-url").write_text(f"{receiver_url}/channel")
    text = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text().replace("/etc/alertmanager/secrets", str(folder))
    config = yaml.safe_load(text)
    config["global"]["pagerduty_url"] = f"{receiver_url}/v2/enqueue"
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    arguments = [
        binary, f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", "--log.level=warn",
    ]  # fmt: skip
    with running(arguments, folder / "alertmanager.log", f"http://127.0.0.1:{port}/-/ready"):
        yield f"127.0.0.1:{port}"


@contextmanager
def running(arguments: Sequence[str], log: Path, ready_url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the end, from when its address answers on."""
    with log.open("ab") as output:
        child = subprocess.Popen(arguments, stdout=output, stderr=output)
    try:
        give_up = time.monotonic() + READY_SECONDS
        while not _answers(ready_url):
            assert child.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < give_up, log.read_text()[-3000:]
            time.sleep(0.1)
        yield child
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(5)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
