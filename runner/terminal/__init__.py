"""The terminal's commands, one file per family. `runner.terminal.cli` lists them all."""
