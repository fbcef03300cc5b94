"""The terminal's commands, one file for each family; `runner.terminal.cli` names them all."""
