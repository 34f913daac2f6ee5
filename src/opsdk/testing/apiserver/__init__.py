"""An in-memory Kubernetes API server that tells the truth."""
