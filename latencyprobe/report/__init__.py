"""The SLO report: one model, several renderings."""
