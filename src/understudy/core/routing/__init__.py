"""Who answers: the policy, the choice of a route, arms, access, rate limits and proxy liveness."""
