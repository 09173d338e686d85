"""PrometheusRules of all LatencyProbes, if the administrator asks for them: what they are, and that they stay so."""
