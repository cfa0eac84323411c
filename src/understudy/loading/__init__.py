"""Loading: which model server is to have which version, the agent that loads it there, and its validation."""
