"""The test kit: virtual time, an in-memory API server, a simulator. Imported by tests only."""
