"""Outcomes that came after the answers: judged entity by entity, and those that hold a step."""
