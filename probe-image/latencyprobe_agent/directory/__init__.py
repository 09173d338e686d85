"""The agent's side of the operator's directory: plans, names, remote join, counts."""
