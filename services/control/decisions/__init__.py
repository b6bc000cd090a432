"""How a command becomes a decision: check the clusters, ask the domain, append to the log, complete the rollout."""
