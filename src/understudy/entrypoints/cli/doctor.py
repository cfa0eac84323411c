"""``understudy doctor``: checks everything that an installation depends on."""

import asyncio
from collections import Counter

import typer

from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import ExitCode
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import show
from understudy.entrypoints.cli.shared.texts.findings_text import findings_table, findings_verdict
from understudy.entrypoints.documents.findings import finding_document
from understudy.entrypoints.logs import keep_log_off_output
from understudy.registry.findings.finding import State

app = typer.Typer(add_completion=False)


@app.command()
def doctor(*, as_json: AsJson = False) -> None:
    """Check the configuration, Postgres, Redis, model servers, the monitor and proxies; leaves with 1 for a problem."""
    keep_log_off_output()
    settings = settings_with_demo()
    # gRPC, which is in another extra: where commands go to a proxy, nothing more is to be installed.
    from understudy.bootstrap.checkup import examine  # noqa: PLC0415

    findings = asyncio.run(examine(settings, is_beside_proxy=True))
    found = Counter(finding.state for finding in findings)
    problems, warnings = found[State.PROBLEM], found[State.WARNING]
    document = {"findings": [*map(finding_document, findings)], "problems": problems, "warnings": warnings}
    show(document, findings_table(findings), findings_verdict(findings), as_json=as_json)
    raise typer.Exit(ExitCode.PROBLEM if problems else ExitCode.DONE)
