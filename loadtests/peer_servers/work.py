# mypy: ignore-errors
# (It runs in the servers' own venvs.)
"""What a peer does in its own process with a checked predict call: find the bucket, hash, answer a constant."""

from loadtests.plain_body import bucket_of, digest_of


def answer(entity_id: str, inputs) -> dict:
    """Return the answer of the arm that the entity's bucket has."""
    role = "challenger" if bucket_of("bench", entity_id) < 10 else "champion"
    digest = digest_of(inputs.model_dump())
    return {"prediction": {"score": 0.5}, "model": "bench", "version": "1", "role": role, "input_hash": digest}
