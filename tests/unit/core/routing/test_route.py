from hashlib import md5

import pytest
from builders import a_policy, a_version
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.routing.buckets import BUCKETS
from understudy.core.routing.policy import Role
from understudy.core.routing.route import (
    Reason,
    Route,
    assignment,
    bucket_of,
    choose_route,
    falls_back,
    is_shadowed,
)

weights = st.integers(0, 100)
entity_ids = st.text(min_size=1, max_size=255)


@given(st.text(max_size=40), entity_ids)
def test_the_bucket_is_the_seeds_formula(model_name, entity_id):
    written_as_in_the_seed = int(md5(f"{model_name}:{entity_id}".encode()).hexdigest(), 16) % 100

    assert bucket_of(model_name, entity_id) == written_as_in_the_seed


@given(weights, entity_ids)
def test_exactly_the_buckets_below_the_weight_reach_the_challenger(weight, entity_id):
    policy = a_policy(challenger=a_version("2"), challenger_weight=weight)

    route = choose_route(policy, entity_id)

    assert (route.role is Role.CHALLENGER) == (route.bucket < weight)
    assert route.version is (policy.challenger if route.bucket < weight else policy.champion)


@given(weights, weights, entity_ids)
def test_raising_the_weight_never_moves_an_entity_back_to_the_champion(weight, other, entity_id):
    low, high = sorted((weight, other))

    at_low = choose_route(a_policy(challenger_weight=low), entity_id).role
    at_high = choose_route(a_policy(challenger_weight=high), entity_id).role

    assert not (at_low is Role.CHALLENGER and at_high is Role.CHAMPION)


@given(entity_ids, st.sampled_from([None, "vip", "other"]))
def test_weight_zero_sends_no_entity_to_the_challenger_whatever_the_category_says(entity_id, category):
    policy = a_policy(challenger=a_version("2"), challenger_weight=0, category_roles={"vip": Role.CHALLENGER})

    assert choose_route(policy, entity_id, category).role is Role.CHAMPION


@given(entity_ids)
def test_a_category_overrides_the_bucket_and_a_forced_version_overrides_both(entity_id):
    forced = a_version("7")
    policy = a_policy(challenger_weight=50, category_roles={"vip": Role.CHAMPION, "beta": Role.CHALLENGER})

    vip, beta = (choose_route(policy, entity_id, category) for category in ("vip", "beta"))
    assert (vip.role, vip.reason) == (Role.CHAMPION, Reason.CATEGORY)
    assert (beta.role, beta.reason) == (Role.CHALLENGER, Reason.CATEGORY)
    assert choose_route(policy, entity_id, "unknown").reason is Reason.BUCKET
    assert choose_route(policy, entity_id, "vip", forced).version is forced
    assert choose_route(policy, entity_id, "vip", forced).reason is Reason.FORCED


def test_a_share_of_a_category_that_routes_to_the_challenger_stays_with_the_champion():
    roles = {"beta": Role.CHALLENGER, "vip": Role.CHAMPION}
    policy = a_policy(challenger_weight=10, category_roles=roles, category_holdout_percent=20)
    entities = [f"customer-{n}" for n in range(5_000)]

    routes = {entity: choose_route(policy, entity, "beta") for entity in entities}
    held_out = [entity for entity, route in routes.items() if route.role is Role.CHAMPION]

    assert {route.reason for route in routes.values()} == {Reason.CATEGORY}
    # 1,000 of 5,000, standard deviation 28; of them a tenth are in the challenger's buckets: 100, 9.5.
    assert abs(len(held_out) - 1_000) < 140
    assert abs(sum(routes[entity].bucket < 10 for entity in held_out) - 100) < 48
    assert all(assignment(policy, entity, "beta").held_out for entity in held_out[:20])
    assert not any(assignment(policy, entity, "vip").held_out for entity in held_out[:20])
    assert not any(assignment(policy, entity).held_out for entity in held_out[:20])
    assert choose_route(policy, held_out[0], "vip").reason is Reason.CATEGORY


@pytest.mark.deep
def test_a_salt_gives_another_experiment_other_entities():
    entities = [f"customer-{n}" for n in range(2_000)]

    plain = {e for e in entities if choose_route(a_policy(challenger_weight=20), e).role is Role.CHALLENGER}
    salted = {e for e in entities if choose_route(a_policy(challenger_weight=20, salt="s"), e).role is Role.CHALLENGER}

    # Independent halves share 20 % of 20 %: 80 of 2,000, standard deviation 8.8; six of them are 53.
    assert abs(len(plain & salted) - 80) < 53


def test_the_shadow_sees_its_share_of_every_bucket():
    policy = a_policy(shadow=a_version("4"), shadow_percent=30)
    entities = [f"customer-{n}" for n in range(10_000)]

    shadowed = [choose_route(policy, e).bucket for e in entities if is_shadowed(policy, e)]

    # 3,000 of 10,000, standard deviation 46; buckets below 50 are half of them, standard deviation 27.
    assert abs(len(shadowed) - 3_000) < 6 * 46
    assert abs(sum(bucket < BUCKETS // 2 for bucket in shadowed) - len(shadowed) / 2) < 6 * 28


def test_without_a_shadow_nothing_is_shadowed():
    assert not is_shadowed(a_policy(), "customer-1")
    assert not is_shadowed(a_policy(shadow=a_version("4"), shadow_percent=0), "customer-1")


@given(weights, entity_ids, st.sampled_from([None, "vip", "other"]))
def test_an_assignment_says_what_the_route_is_and_from_which_weight_on_it_changes(weight, entity_id, category):
    policy = a_policy(challenger=a_version("2"), challenger_weight=weight, category_roles={"vip": Role.CHALLENGER})

    found = assignment(policy, entity_id, category)

    route = choose_route(policy, entity_id, category)
    receipt = (route.version.version, route.role, route.bucket, route.reason)
    assert (found.version, found.role, found.bucket, found.reason) == receipt
    assert found.joins_challenger_from_weight is not None
    for at, role in ((found.joins_challenger_from_weight - 1, Role.CHAMPION), (found.bucket + 1, Role.CHALLENGER)):
        assert choose_route(a_policy(challenger=a_version("2"), challenger_weight=at), entity_id).role is role


A, B, C, D = (a_version(label) for label in "1234")
# Who has which bucket from the challenger's up: each cut is where another version begins.
tables = st.lists(st.sampled_from([None, C, D]), min_size=100, max_size=100)


def entity_in(bucket: int) -> str:
    return next(f"e{n}" for n in range(10_000) if bucket_of("visits", f"e{n}") == bucket)


ENTITIES = [entity_in(bucket) for bucket in range(BUCKETS)]


def with_arms(weight: int, table, **changes):
    arms = {bucket: version for bucket, version in enumerate(table) if version is not None and bucket >= weight}
    return a_policy(champion=A, challenger=B, challenger_weight=weight, arms=arms, **changes)


@pytest.mark.parametrize("category", [None, "vip", "beta", "other"])
@pytest.mark.parametrize("roles", [{}, {"vip": Role.CHAMPION, "beta": Role.CHALLENGER}])
def test_with_two_arms_every_bucket_goes_where_the_seeds_rule_sends_it(category, roles):
    wrong = []
    for weight in range(101):
        policy = a_policy(champion=A, challenger=B, challenger_weight=weight, category_roles=roles)
        for bucket, entity in enumerate(ENTITIES):
            by_category = weight > 0 and category in roles
            to_b = roles[category] is Role.CHALLENGER if by_category else bucket < weight
            expected = (B, Role.CHALLENGER) if to_b else (A, Role.CHAMPION)
            route = choose_route(policy, entity, category)
            reason = Reason.CATEGORY if by_category else Reason.BUCKET
            if route != Route(*expected, bucket, reason):
                wrong.append((weight, bucket, route))

    assert wrong == []


@given(weights, tables)
def test_every_bucket_reaches_the_version_that_has_it(weight, table):
    policy = with_arms(weight, table)

    for bucket, entity in enumerate(ENTITIES):
        owner = B if bucket < weight else table[bucket] or A
        role = Role.CHAMPION if owner is A else Role.CHALLENGER
        assert choose_route(policy, entity) == Route(owner, role, bucket, Reason.BUCKET)


@pytest.mark.deep
@given(weights, tables, weights, tables)
def test_an_entity_changes_its_version_only_when_its_bucket_changes_its_owner(weight, table, later, changed):
    before, after = with_arms(weight, table), with_arms(later, changed)

    for bucket, entity in enumerate(ENTITIES):
        kept = (bucket < weight) == (bucket < later) and (bucket < weight or table[bucket] is changed[bucket])
        same = choose_route(before, entity).version is choose_route(after, entity).version
        assert same or not kept


@given(st.integers(0, 80), st.sampled_from(ENTITIES))
def test_a_category_goes_before_an_arm_unless_it_means_a_challenger_without_weight(weight, entity):
    roles = {"vip": Role.CHAMPION, "beta": Role.CHALLENGER}
    policy = with_arms(weight, [None] * 90 + [C] * 10, category_roles=roles)

    vip, beta = (choose_route(policy, entity, category) for category in ("vip", "beta"))

    assert vip == Route(A, Role.CHAMPION, vip.bucket, Reason.CATEGORY)
    if weight:
        assert beta == Route(B, Role.CHALLENGER, beta.bucket, Reason.CATEGORY)
    else:
        assert beta == choose_route(policy, entity)


def test_a_forced_arm_is_a_challenger_and_a_failing_one_is_answered_for():
    policy = with_arms(10, [None] * 90 + [C] * 10)

    assert choose_route(policy, "e", forced=C).role is Role.CHALLENGER
    assert falls_back(policy, choose_route(policy, ENTITIES[95]))
    assert policy.called_ids == {A.id, B.id, C.id}


def test_no_weight_is_named_at_which_an_arms_entity_would_join_the_challenger():
    policy = with_arms(10, [None] * 90 + [C] * 10)

    assert assignment(policy, ENTITIES[95]).joins_challenger_from_weight is None
    assert assignment(policy, ENTITIES[50]).joins_challenger_from_weight == 51
