"""The Grafana dashboards: what they show, and the form that Grafana reads."""
