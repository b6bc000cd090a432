"""How a command becomes a decision: look at the world, ask the domain, append to the log, see the rollout through."""
