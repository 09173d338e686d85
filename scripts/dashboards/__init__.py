"""The Grafana dashboards of the chart, built with Grafana's own SDK from the names that the agents export."""
