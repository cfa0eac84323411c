"""Findings as ``--json`` and the control plane give them."""

from typing import Any

from understudy.registry.findings.finding import Finding


def finding_document(finding: Finding) -> dict[str, Any]:
    """Return a finding as a document; commands of earlier releases read exactly these fields."""
    return {"name": finding.name, "state": finding.state, "what": finding.what, "next_step": finding.next_step}
