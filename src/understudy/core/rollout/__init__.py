"""The rollout as a state machine: plan, state, transitions, actions, forecast and history."""
