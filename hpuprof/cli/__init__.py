"""The command line: one small module a command; `main` maps every exception to an exit code."""
