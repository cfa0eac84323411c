"""Operations over HTTP: the control plane and predictions of a real proxy."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx2

from rigs.histories.answers import UNKNOWN, Answer, is_refusal, refused, understood, unexpected
from rigs.histories.record import Ended, Kind, Operation
from rigs.histories.stack import Member, Stack
from understudy.adapters.dev_server.example_models import example_rows

MODEL = "/v1/models/visits"
_UNKNOWN_STATUSES = (503, 504)


class ByHttp:
    """One client at one of the proxies.

    Args:
        stack: Whose proxies.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    async def carry_out(self, operation: Operation, proxy: Member, rollout_id: int) -> Answer:
        """Make the call and say how it ended; ``rollout_id`` is the newest that any client knows."""
        before = proxy.identity
        try:
            answer = await self._send(operation, proxy, rollout_id)
        except httpx2.HTTPError:
            return UNKNOWN
        if operation.kind is Kind.PREDICT and answer.is_success:
            # A proxy that was replaced meanwhile: which of the two answered is not known.
            by = before if before == proxy.identity else f"{before}/{operation.tag}"
            return Answer(Ended.DONE, {"calls": _calls(answer.json(), by)})
        return _understood(operation, answer)

    async def _send(self, operation: Operation, proxy: Member, rollout_id: int) -> httpx2.Response:
        base = f"http://127.0.0.1:{proxy.port}"
        if operation.kind in _READS:
            path, parameters = _READS[operation.kind]
            return await self._stack.http.get(f"{base}{path}", params=parameters)
        asked, why = operation.asked, {"reason": operation.tag}
        if operation.kind is Kind.SET:
            headers = {"if-match": f'"{asked["expected"]}"'}
            body = {**asked["changes"], **why}
            return await self._stack.http.patch(f"{base}{MODEL}/policy", json=body, headers=headers)
        place = _PLACES.get(operation.kind, f"/rollouts/{rollout_id}:{operation.kind.value}")
        body = {"entities": _members(asked["entities"])} if operation.kind is Kind.PREDICT else {**asked, **why}
        return await self._stack.http.post(f"{base}{MODEL}{place}", json=body)


_READS: Mapping[Kind, tuple[str, Mapping[str, str | int]]] = {
    Kind.READ_POLICY: (f"{MODEL}/policy", {}),
    Kind.READ_AUDIT: ("/v1/audit", {"model": "visits", "limit": 20}),
    Kind.READ_ROLLOUT: (f"{MODEL}/rollouts", {"limit": 1}),
}
_PLACES: Mapping[Kind, str] = {
    Kind.ROLL_BACK: ":rollback",
    Kind.START: "/rollouts",
    Kind.PREDICT: "/predict:batch",
}
"""What is posted to; every other kind is a command to a rollout."""


@cache
def _inputs() -> list[Mapping[str, Any]]:
    return [row.inputs for row in example_rows()]


def _members(entities: list[str]) -> list[dict[str, Any]]:
    rows = _inputs()
    return [{"entity_id": entity, "inputs": rows[int(entity.rpartition("-")[2])]} for entity in entities]


def _calls(document: Mapping[str, Any], proxy: str) -> list[dict[str, Any]]:
    return [
        {
            "entity": one["entity_id"],
            "generation": one["generation"],
            "version": one["version"],
            "role": one["role"],
            "fallback_from": one["fallback"]["from_version"] if "fallback" in one else None,
            "prediction_id": one["prediction_id"],
            "proxy": proxy,
        }
        for one in document["predictions"]
        if "error" not in one
    ]


def _understood(operation: Operation, answer: httpx2.Response) -> Answer:
    if answer.is_success:
        return understood(operation.kind, answer.json())
    if answer.status_code in _UNKNOWN_STATUSES:
        return UNKNOWN
    problem = answer.json() if "json" in answer.headers.get("content-type", "") else {}
    code = str(problem.get("code"))
    if is_refusal(code):
        return refused(code, problem.get("detail", ""))
    return unexpected(f"{answer.status_code}: {answer.text}")
