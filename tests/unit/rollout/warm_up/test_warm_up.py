"""What the warm-up says of a version that is not ready."""

import numpy as np
from builders import a_version_row, policy_rows

from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.memory.policy import MemoryPolicySource
from understudy.adapters.model_servers.connect import PROTOCOLS
from understudy.core.schema.tensors import Datatype, Tensor
from understudy.errors import BadAnswer
from understudy.rollout.warm_up.warm_up import WarmUpProbe

SHAPE = "input 'age' must have shape [-1, 1], has [1]"


async def test_the_model_servers_own_words_are_told_because_the_inputs_were_made_up():
    policies = MemoryPolicySource({"models": {"visits": policy_rows()}, "keys": []})
    backend = MemoryBackend(lambda rows: Tensor(Datatype.FP32, (len(rows),), np.zeros(len(rows), np.float32)))
    backend.error = BadAnswer("the model server refused the call with INVALID_ARGUMENT")
    backend.error.said = SHAPE

    found = await WarmUpProbe(policies, lambda _: backend, PROTOCOLS).probe("visits", "2")

    assert not found.passed
    assert found.detail == f'the model server refused the call with INVALID_ARGUMENT; it says: "{SHAPE}"'


async def test_a_version_of_a_protocol_that_no_proxy_of_this_release_speaks_is_not_called():
    versions = [a_version_row("1"), a_version_row("2", protocol="quic")]
    policies = MemoryPolicySource({"models": {"visits": policy_rows(versions=versions)}, "keys": []})
    backend = MemoryBackend(lambda rows: Tensor(Datatype.FP32, (len(rows),), np.zeros(len(rows), np.float32)))

    found = await WarmUpProbe(policies, lambda _: backend, PROTOCOLS).probe("visits", "2")

    assert (found.passed, found.detail) == (False, "its row cannot be used: see understudy doctor")
    assert backend.calls == []
