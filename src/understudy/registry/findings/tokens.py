"""What a checkup says of model servers' tokens: which hosts may get one, and whether the network can read it."""

from collections.abc import Collection, Sequence

from understudy.core.first_names import first_names
from understudy.core.upstream.endpoint_rules import parse_target, says_loopback
from understudy.registry.findings.finding import MAX_NAMED, Finding, State


def judge_token_hosts(variables: Collection[str], hosts_suffix: str) -> list[Finding]:
    """Judge which hosts may get each token: a user who may register a version may name any of them.

    Args:
        variables: Names of the environment variables that are set, of tokens and of their lists of hosts.
        hosts_suffix: What the name of a token's list of hosts has behind the token's own.
    """
    tokens = sorted(name for name in variables if not name.endswith(hosts_suffix))
    return [_of_hosts(name, f"{name}{hosts_suffix}", is_listed=f"{name}{hosts_suffix}" in variables) for name in tokens]


def judge_token_wire(model: str, version: str, variable: str, endpoints: Sequence[str]) -> list[Finding]:
    """Judge a version whose calls go without TLS: the network between reads the token, but for this machine's own."""
    remote = [endpoint for endpoint in endpoints if not _is_loopback(endpoint)]
    if not remote:
        return []
    what = f"{variable} goes in plain text to {first_names(remote, MAX_NAMED)}: the network between can read it"
    advice = 'Give its model servers a certificate, and the version "tls": true in its backend.'
    return [Finding(f"{model} {version} token", State.WARNING, what, advice, model)]


def _of_hosts(variable: str, hosts: str, *, is_listed: bool) -> Finding:
    name = f"token {variable}"
    if is_listed:
        return Finding(name, State.GOOD, f"goes only to hosts that {hosts} names")
    what = f"may go to any host: {hosts} is not set, so each user who may register a version can read the token"
    advice = f"Set {hosts} to the hosts that may get it, as *.models.internal,10.0.0.0/8, for each proxy."
    return Finding(name, State.WARNING, what, advice)


def _is_loopback(endpoint: str) -> bool:
    try:
        return says_loopback(parse_target(endpoint).host)
    except ValueError:
        return True  # nothing is sent there: the finding about its server says why
