"""The nightshift command line: finds the command that was typed and imports only that."""

from __future__ import annotations

import gc
import os
import sys


def _full(path: str) -> str:
    """Return the absolute path, or the path unchanged if the current folder has been removed."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        return path


def _leave_users_path() -> None:
    """Remove PYTHONPATH from sys.path: users have a runner.py too. Jobs still get the variable."""
    theirs = {_full(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    ours = os.path.dirname(_full(__file__))
    sys.path[:] = [entry for entry in sys.path if entry and (entry == ours or _full(entry) not in theirs)]
    if ours not in sys.path:
        sys.path.insert(0, ours)


def _take_env_file(words: list[str]) -> list[str]:
    """Apply --env-file, which comes before any command, and return the remaining words."""
    from runner.config import home

    while words and words[0].partition("=")[0] == "--env-file":
        _, glued, file = words[0].partition("=")
        if not glued and len(words) < 2:
            break  # no file is named: click reports that
        home.use_env_file(file if glued else words[1])
        words = words[1 if glued else 2 :]
    return words


def _hide_token(words: list[str]) -> None:
    """Take the bot's token out of this process's environment, where every job could read it."""
    if "NIGHTSHIFT_TOKEN" in os.environ or "NIGHTSHIFT_TOKEN_FD" in os.environ:
        from bot.token import out_of_sight

        out_of_sight(words[0] if words else "")


def _run_quickly(words: list[str]) -> int:
    """Run a command that people type all day, and return its exit code.

    Its modules are no garbage. Looking for some among them, while they are loaded and at the end, would take 6 ms.
    """
    gc.disable()
    if words == ["ls"]:
        from runner.terminal.job_table import main as run
    else:
        from runner.terminal.submit import main as run
    gc.freeze()
    gc.enable()
    code = run(words[1:])
    gc.freeze()
    return code


def _print_no_more() -> None:
    """Send stdout to /dev/null: flushing its buffer at exit would only fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code. Errors: 1 if the user can fix it, 2 if the operator must."""
    _leave_users_path()
    from runner.errors import NightshiftError

    try:
        words = _take_env_file(sys.argv[1:] if arguments is None else arguments)
        _hide_token(words)
        if words[:1] == ["submit"] or words == ["ls"]:
            code = _run_quickly(words)
        else:
            from runner.terminal.cli import main as command

            code = command(words)
        sys.stdout.flush()
    except NightshiftError as error:
        print(f"nightshift: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        _print_no_more()
        code = 0
    except OSError as error:
        print(f"nightshift: {error.strerror}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        _print_no_more()
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
