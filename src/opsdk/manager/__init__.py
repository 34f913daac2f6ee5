"""Everything under one roof: runnables, leader election, probes, metrics, logs, and an orderly end."""
