"""Checks beside the tick, each at its own pace: drift, entities, slices, outcomes and constant scores."""
