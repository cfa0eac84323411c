"""Start of a rollout: its plan and forecast, and whether its outcomes and its callers' deadlines can be met."""
