import subprocess
from pathlib import Path

import pytest

from runner.commands.background_check import foreground_of, refuse_leaving
from runner.errors import UserError

LEAVING = {
    "nohup python run.py test data > log.txt 2>&1 &": "python run.py test data > log.txt 2>&1",
    "python run.py all > log.txt &": "python run.py all > log.txt",
    "python a.py & disown": "python a.py",
    "python a.py & disown -h %1": "python a.py",
    "(python a.py &)": "python a.py",
    "(cd x; python a.py &) > log": "(cd x; python a.py) > log",
    "{ a & }": "a",
    "{ a & disown; }": "a",
    "setsid python a.py &": "python a.py",
    "setsid --fork python a.py &": "python a.py",
    "nohup sh -c 'a; b' &": "sh -c 'a; b'",
    "FOO=1 nohup nice python a.py &> log < /dev/null &": "FOO=1 nice python a.py &> log < /dev/null",
    "cd x && nohup setsid a \\\n  --x &": "cd x && a \\\n  --x",
    "cd x\npython a.py &\n\n": "cd x\npython a.py",
    "a &\r\n": "a",
    "a & # in the background": "a # in the background",
    "a | b &": "a | b",
    "a 2>&1&": "a 2>&1",
    "a &!": "a",
    "x='&' a &": "x='&' a",
    "find . -exec rm {} \\; &": "find . -exec rm {} \\;",
    "{ find . -exec rm {} \\; & }": "find . -exec rm {} \\;",
    "for i in 1 2; do a; done; b &": "for i in 1 2; do a; done; b",
    "case done in x) a ;; esac &": "case done in x) a ;; esac",
    "x=(nohup b); nohup a &": "x=(nohup b); a",
    "((a); b &)": "(a); b",
    "a > >(tee log &) &": "a > >(tee log &)",
    "if x; then command nohup a & fi": "if x; then command a; fi",
    # several at once, and loops: they stay together, and are waited for
    "a & b &": "a & b & wait",
    "a & b & # both": "a & b & wait # both",
    "nohup a & nohup b &": "a & b & wait",
    "(a & b &)": "(a & b & wait)",
    "{ a & b & }": "{ a & b & }; wait",
    "a & wait; b &": "a & wait; b & wait",
    "for i in 1 2; do a $i & done": "for i in 1 2; do a $i & done; wait",
    "for ((i=0; i<3; i++)); do a & done": "for ((i=0; i<3; i++)); do a & done; wait",
    "while read x; do a $x & done < list": "while read x; do a $x & done < list; wait",
    "(for i in 1 2; do a & done)": "(for i in 1 2; do a & done; wait)",
    "if x; then a & fi": "if x; then a; fi",
    "if x; then a & else b & fi": "if x; then a & else b & fi; wait",
    "case $x in a) b & ;; esac": "case $x in a) b; ;; esac",
    # words after it that do no work
    "nohup a & echo $! > pid": "a & echo $! > pid; wait $!",
    "nohup a & echo x && exit": "a & echo x; wait $!",
    "nohup a & disown; exit 0": "a",
    "a & disown; echo started": "a & echo started; wait $!",
    "a & disown; exit; echo x": "a & echo x; wait $!",
    "a & PID=$!": "a & PID=$!; wait $!",
    "(nohup a & nohup b &) && echo ok": "(a & b & wait) && echo ok",
    "a & disown; echo x || exit; echo y": "a & echo x ; echo y; wait $!",
    "nohup a & true; :": "a & true; :; wait $!",
    # here-documents
    "cat <<EOF\nx\nEOF\na &": "cat <<EOF\nx\nEOF\na",
    "cat <<-EOF\n\tx\n\tEOF\na &\n": "cat <<-EOF\n\tx\n\tEOF\na",
    "cat <<EOF &\nx &\nEOF\n": "cat <<EOF\nx &\nEOF",
    "a & cat <<EOF &\nx &\nEOF\n": "a & cat <<EOF & wait\nx &\nEOF",
    "nohup cat <<E & disown\nbody\nE\n": "cat <<E \nbody\nE",
    # in the foreground, but setsid leaves by itself
    "setsid python a.py": "python a.py",
    "cd x; nohup setsid -f a": "cd x; a",
    "setsid a;\n": "a;",
}


@pytest.mark.parametrize(("command", "better"), LEAVING.items())
def test_a_command_that_leaves_is_refused_with_one_that_stays(command: str, better: str) -> None:
    with pytest.raises(UserError) as refused:
        refuse_leaving(command)
    explanation, shown = str(refused.value).split("\n\n", 1)
    assert shown == better
    assert explanation.count(". ") == 1
    assert foreground_of(better) is None
    assert parses(better)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "\n",
        "a",
        "a & b & wait",
        "a &\nwait",
        "a & wait $!",
        "a & b",
        "a & b  # &",
        "a && b",
        "a || b",
        "a |& b",
        "echo 'x &'",
        'echo "x &"',
        "echo x \\&",
        "echo $'it\\'s &'",
        "echo x#y; a # &",
        "a 2>&1",
        "a &> file",
        "a &>> file",
        "a <<< 'x &'",
        "a &\ncat <<<x\nwait",
        "cat <<EOF\nx &\nEOF",
        "cat <<-'EOF'\n\tx &\n\tEOF\n",
        "cat <<A <<B\nx &\nA\ny &\nB\n",
        "nohup python a.py",
        "setsid -w a",
        "setsid -fw a",
        "setsid --wait a",
        "setsid a; b",
        "a | setsid b",
        "time setsid a",
        "(setsid a)",
        "echo setsid a",
        "echo $((a & b))",
        "((a & b))",
        "x=$(a &)",
        'echo "$(a "x)" &)"',
        "echo `a &`",
        "echo ${x:-a &}",
        "diff <(a &) <(b &)",
        "x=(a b)",
        "echo done",
        "[[ $x =~ ^(a|b)$ && -f y ]]",
        "for i in 1 2; do a & done; wait",
        # the pipe stays open, and so does its reader
        "for i in 1 2; do a & done | tee log",
        "(a &) | tee log",
        # helpers of the main process
        "nohup ./server & python client.py",
        "setsid ./server & sleep 1",
        "a & disown; python b.py",
        "a & echo started",
        "f() { a & }; f; b",
        "case x in a) b & ;; esac; c",
        # for bash to complain about
        "&",
        "& a",
        "a &&",
        "a & ;",
        "a ; &",
        "a && &",
        "a || & b &",
        "( &)",
        "a & >",
        "a & b ||",
        "a |& setsid b",
        "a & }",
        "a &)",
        "(a &",
        "{ a &",
        "do a & fi",
        "a > &",
        "echo 'x &",
        'echo "x &',
        "echo $(a &",
        "a \\",
        "nohup &",
    ],
)
def test_a_command_that_stays_is_left_alone(command: str) -> None:
    refuse_leaving(command)
    assert foreground_of(command) is None


def parses(command: str) -> bool:
    done = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True, check=False)
    return done.returncode == 0


WORK = "sh -c 'until [ -e go ]; do sleep 0.05; done; sleep 0.15; echo done >> mark'"


@pytest.mark.parametrize(
    ("template", "times"),
    [
        ("nohup W &", 1),
        ("W & disown", 1),
        ("(W &)", 1),
        ("setsid W", 1),
        ("true && setsid W", 1),
        ("nohup W & echo $! && exit 0", 1),
        ("W & W &", 2),
        ("(W & W &) > log", 2),
        ("for i in 1 2; do W & done", 2),
        ("if true; then W & fi", 1),
        ("cat <<E & W &\nx\nE\n", 1),
    ],
)
def test_bash_agrees(tmp_path: Path, template: str, times: int) -> None:
    """The command as typed really ends before its work; the mended one really does not."""
    command = template.replace("W", WORK)
    better = foreground_of(command)
    assert better is not None
    assert work_done_when_bash_ends(tmp_path / "typed", command, may_end=False) == 0
    assert work_done_when_bash_ends(tmp_path / "mended", better) == times


@pytest.mark.parametrize("template", ["W", "nohup W", "setsid -w W", "(setsid W)", "W & wait", "true & W"])
def test_bash_agrees_about_what_stays(tmp_path: Path, template: str) -> None:
    command = template.replace("W", WORK)
    assert foreground_of(command) is None
    assert work_done_when_bash_ends(tmp_path / "typed", command) == 1


def work_done_when_bash_ends(folder: Path, command: str, *, may_end: bool = True) -> int:
    """Run a command. Its work may end at once, or only after bash has."""
    folder.mkdir()
    if may_end:
        (folder / "go").touch()
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # In a session of its own, as the supervisor starts it: there setsid has to fork.
    subprocess.run(["bash", "-c", command], cwd=folder, start_new_session=True, check=False, **quiet)  # type: ignore[call-overload]
    mark = folder / "mark"
    done = mark.read_text().count("done") if mark.exists() else 0
    (folder / "go").touch()
    return done


def test_the_wait_hands_on_how_the_work_ended() -> None:
    better = foreground_of("nohup sh -c 'exit 7' & echo started")
    assert better is not None
    assert subprocess.run(["bash", "-c", better], capture_output=True, check=False).returncode == 7
