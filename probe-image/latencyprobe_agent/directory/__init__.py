"""The agent's side of the operator's directory: plan, identities, remote join, status and counts."""
