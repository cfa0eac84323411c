"""The model lifecycle: what servers are to have loaded, and the agent that sees to it beside each of them."""
