"""A strictly typed SDK for Kubernetes operators."""
