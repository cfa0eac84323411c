"""What a key with the scope ``keys`` may do to other keys: make those that are no more than itself, and end them."""

from math import inf
from typing import TYPE_CHECKING

from understudy.core.routing.access import scopes_beyond

if TYPE_CHECKING:  # numpy, which a command about keys does not need
    from understudy.core.routing.policy import ApiKey


def excess_of(own: "ApiKey", wanted: "ApiKey") -> str | None:
    """Return what a wanted key would have more than the ``own`` key of who makes it, in words; ``None``: nothing."""
    if scopes_beyond(own.scopes, wanted.scopes):
        return "a key gives no scope that it has not itself"
    if own.expires_at < inf and wanted.expires_at > own.expires_at:
        return "a key that expires makes none that outlasts it: expires_at is missing, or too late"
    if own.tenant is not None and wanted.tenant != own.tenant:
        return "a key of a tenant makes only keys of that tenant: name it as tenant"
    rates = zip(own.allowance._fields, own.allowance, wanted.allowance, strict=True)
    larger = [name for name, limit, rate in rates if limit is not None and (rate is None or rate > limit)]
    if larger:
        return f"a key makes none that may use more than itself: {larger[0]} is missing, or too much"
    return None


def may_revoke(own: "ApiKey", other: "ApiKey") -> bool:
    """Whether a key may revoke another one: what it could have made but for its end and its limits, and itself.

    Else a key that may do little, once stolen, would end every caller's.
    """
    is_of_its_tenant = own.tenant is None or other.tenant == own.tenant
    return other.id == own.id or (is_of_its_tenant and not scopes_beyond(own.scopes, other.scopes))
