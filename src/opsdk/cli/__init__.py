"""The command line, `opsdk`: a module for each command."""
