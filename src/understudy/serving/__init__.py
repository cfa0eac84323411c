"""The data plane: one predict call and what it needs around it."""
