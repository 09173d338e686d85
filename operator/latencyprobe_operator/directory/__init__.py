"""The HTTPS service that agents talk to: plans and identities out, statuses and SLI counts in."""
