"""The `seriatim` command: parse, call a tool, render. It never does the work itself."""
