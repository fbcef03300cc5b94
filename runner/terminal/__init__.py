"""The terminal's commands, one file for each family; `runner.cli` names them all."""
