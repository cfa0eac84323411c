"""Tokens of an OIDC issuer, where settings name one."""

from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec

from understudy import DISTRIBUTION
from understudy.background.tasks import run_until_closed
from understudy.core.routing.token_grants import parse_grants
from understudy.core.routing.token_rules import TokenRules
from understudy.ports.registry.tokens import TokenReader
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.settings import Settings

_AWAY = "oidc_issuer_away_seconds"


class TokensRefused(Exception):
    """Tokens are to be accepted and cannot be verified; says why, and what to do next."""

    def __init__(self, detail: str, next_step: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.next_step = next_step


def check_tokens(settings: Settings) -> None:
    """Go on only where what the settings ask for is installed.

    Raises:
        TokensRefused: An issuer is named, and the extra is not there.
    """
    if settings.oidc_issuer is not None and find_spec("joserfc") is None:
        raise TokensRefused(
            "UNDERSTUDY_OIDC_ISSUER asks for tokens, and joserfc is not installed",
            f"Install the extra that verifies them, pip install '{DISTRIBUTION}[oidc]', or unset the variable.",
        )


def open_tokens(settings: Settings, telemetry: Telemetry, stack: AsyncExitStack) -> TokenReader | None:
    """Return what reads tokens, and keep the issuer's keys fresh until ``stack`` closes; ``None``: no issuer is named.

    The first fetch goes on beside the start: a proxy whose issuer is down serves callers with keys.
    """
    if settings.oidc_issuer is None:
        return None
    # Late: signatures by public keys take 60 ms of processor, which a proxy without an issuer does without.
    from understudy.adapters.oidc.published_keys import key_fetcher  # noqa: PLC0415
    from understudy.adapters.oidc.tokens import OidcTokens  # noqa: PLC0415

    rules = TokenRules(
        issuer=settings.oidc_issuer,
        audience=settings.oidc_audience or "",
        grants=parse_grants(settings.oidc_scopes),
        actor_claim=settings.oidc_actor_claim,
        leeway_seconds=settings.oidc_leeway_seconds,
        max_seconds=settings.oidc_max_token_seconds,
    )
    algorithms = settings.oidc_algorithms.split(",")
    tokens = OidcTokens(
        rules,
        key_fetcher(settings.oidc_jwks_url or ""),
        algorithms=algorithms,
        tell_away=partial(telemetry.set, _AWAY),
    )
    telemetry.set(_AWAY, 0)
    run_until_closed("oidc_keys", tokens.run, telemetry, stack)
    return tokens
