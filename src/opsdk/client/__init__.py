"""The typed client and what carries its requests."""
