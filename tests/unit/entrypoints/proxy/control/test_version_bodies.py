import pytest

from understudy.entrypoints.proxy.control.bodies import MAX_ARMS, Body, PolicyChange
from understudy.entrypoints.proxy.control.version_bodies import MAX_ENDPOINTS, VersionRegistration
from understudy.errors import BodyInvalid

DESCRIBED = b'{"version": "1", "artifact_path": "s3://m", "framework": "x", "input_schema": {}, "endpoints": ['


@pytest.mark.parametrize(
    ("body", "start", "most"),
    [(VersionRegistration, DESCRIBED, MAX_ENDPOINTS), (PolicyChange, b'{"arms": [', MAX_ARMS)],
)
def test_a_list_that_is_too_long_is_one_problem_and_its_members_are_not_looked_at(body: type[Body], start, most):
    def problems(count: int) -> list[str]:
        with pytest.raises(BodyInvalid) as refused:
            body.read(start + b",".join([b"1"] * count) + b"]}")
        return [violation.pointer for violation in refused.value.violations]

    listed = problems(most)[0].rpartition("/")[0]
    assert problems(most + 1) == [listed]
