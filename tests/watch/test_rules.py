"""Rules and routes as Prometheus' and Alertmanager's own tools read them."""

import subprocess
from pathlib import Path

import pytest
from watch.programs import DEPLOY, ROOT, RULES, program

ROUTES = DEPLOY / "alertmanager" / "alertmanager.yml"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(one) for one in arguments], capture_output=True, text=True, check=False, timeout=200)


def test_the_rules_are_well_formed():
    done = run(program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", *RULES)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_is_well_formed(tmp_path):
    # With its rules beside it, as it is mounted; the addresses are looked up later.
    done = run(program("promtool"), "check", "config", "--lint=all", DEPLOY / "prometheus" / "prometheus.yml")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "watch" / "rules").glob("*.yml")), ids=lambda path: path.stem)
def test_every_alert_fires_when_it_should_and_is_silent_when_it_should(path):
    done = run(program("promtool"), "test", "rules", path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_routes_are_well_formed():
    done = run(program("amtool"), "check-config", ROUTES)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (["severity=critical", "alertname=ModelUnavailable", "model=churn"], "pager"),
        (["severity=warning", "alertname=RolledBack", "model=churn"], "channel"),
        (["alertname=SomethingOfYourOwn"], "channel"),
    ],
)
def test_what_is_critical_pages_somebody_and_nothing_else_does(labels, receiver):
    amtool = program("amtool")

    done = run(amtool, "config", "routes", "test", f"--config.file={ROUTES}", f"--verify.receivers={receiver}", *labels)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == receiver
