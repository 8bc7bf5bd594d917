"""What others see of a runner: metrics for Prometheus, and OpenLineage events."""
