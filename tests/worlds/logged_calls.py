"""A model with its versions and its logged calls, to be sent to a server of which the answers are known."""

import time
from collections.abc import Sequence
from typing import Any

import asyncpg
import orjson
from contract.servers import MODEL_NAME
from traffic.logged import LoggedTraffic
from traffic.spooled_rows import a_row

NUMBERS: dict[str, Any] = {
    "features": [{"name": name, "dtype": "float32"} for name in "abc"],
    "tensors": [{"name": "x", "dtype": "float32", "features": ["a", "b", "c"]}],
}
OUTPUT = {"tensor": "p"}
WRITTEN = ("predictionlog", "predictionwindow", "predictionmetric", "drifthour", "spooloffset", "policyaudit")
# The server answers a + 10 b + 100 c.
CALLS = [({"a": float(n), "b": 1.0, "c": 0.0}, n + 10.0 + (0.5 if n % 4 == 0 else 0.0)) for n in range(40)]


class LoggedCalls:
    """A model with its versions and its logged calls."""

    def __init__(self, database: asyncpg.Connection, traffic: LoggedTraffic) -> None:
        self.database = database
        self.traffic = traffic
        self.at = time.time() - 600

    async def add_version(
        self, label: str, endpoint: str = "", inputs: Any = NUMBERS, output: Any = OUTPUT, **columns: Any
    ) -> int:
        values = {
            "model_name": MODEL_NAME,
            "version": label,
            "artifact_path": "s3://models/linear",
            "framework": "sklearn",
            "input_schema": orjson.dumps(inputs).decode(),
            "output_schema": orjson.dumps(output).decode(),
            "timeout_ms": 5_000,
            **columns,
        }
        places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        version_id: int = await self.database.fetchval(
            f"INSERT INTO ModelVersion ({', '.join(values)}) VALUES ({places}) RETURNING id", *values.values()
        )
        if endpoint:
            await self.database.execute(
                "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", version_id, endpoint
            )
        return version_id

    async def log(self, version_id: int, calls: Sequence[tuple[Any, Any]], **changes: Any) -> None:
        """Log a call for each of these inputs with what was answered: a score, or a whole prediction."""
        rows = []
        for number, (inputs, answer) in enumerate(calls):
            document = answer if isinstance(answer, dict) else {"score": answer}
            rows.append(
                a_row(version_id=version_id, prediction=orjson.dumps(document))._replace(
                    predicted_at=self.at + number,
                    entity_id=f"cust-{number}",
                    score=document.get("score"),
                    inputs=None if inputs is None else orjson.dumps(inputs),
                    **changes,
                )
            )
        await self.traffic.ship(rows)

    async def written(self) -> list[int]:
        counts = [await self.database.fetchval(f"SELECT count(*) FROM {table}") for table in WRITTEN]
        return [int(count) for count in counts]
