"""Why an entity's calls go where they do, in words."""

from understudy.core.routing.policy import ServingPolicy
from understudy.core.routing.route import Assignment, Reason


def assignment_facts(policy: ServingPolicy, found: Assignment) -> list[tuple[str, str]]:
    """Return why an entity goes where it does, and what would change that: names and words."""
    reasons = [("why", why_words(policy, found))]
    if policy.challenger is not None and found.joins_challenger_from_weight is not None:
        reasons.append(
            ("joins", f"{found.entity_id} joins the challenger from weight {found.joins_challenger_from_weight} on")
        )
    shadow = "none"
    if policy.shadow is not None:
        sees = "sees" if found.shadowed else "does not see"
        shadow = f"{policy.shadow.version} {sees} these calls (it is shown {policy.shadow_percent} % of the entities)"
    salt = (
        "none: the same entities come first for every challenger of this model" if policy.salt is None else policy.salt
    )
    return [*reasons, ("shadow", shadow), ("salt", salt), ("generation", str(policy.generation))]


def _why_of_category(policy: ServingPolicy, found: Assignment) -> str:
    if found.held_out:
        return f"its category routes to the challenger; it is one of the {policy.category_holdout_percent} % held out"
    return f"its category's role; by its bucket it would join the challenger from weight {found.bucket + 1} on"


def why_words(policy: ServingPolicy, found: Assignment) -> str:
    """Return why a policy sends an entity to its version."""
    challenger, weight, arm = policy.challenger, policy.challenger_weight, policy.arms.get(found.bucket)
    if arm is not None and found.reason == Reason.CATEGORY:
        return f"its category's role; by its bucket it would meet version {arm.version}"
    if arm is not None:
        return f"bucket {found.bucket} is one of the {policy.arm_percents[arm]} of version {arm.version}, a further arm"
    if found.reason == Reason.CATEGORY:
        return _why_of_category(policy, found)
    entities = "every entity that no further arm has" if policy.arms else "every entity"
    if challenger is None:
        return f"there is no challenger: the champion answers {entities}"
    if weight <= 0:
        return f"the challenger ({challenger.version}) has weight 0: the champion answers {entities}"
    return f"the challenger ({challenger.version}) takes buckets 0 to {weight - 1} at weight {weight}"
