import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.commands.background_check import foreground_of, refuse_leaving

SHELLISH = st.lists(
    st.sampled_from(
        [
            *"&;|()<>{}'\"`$\\#\n \t!=a1",
            *["&&", "||", ";;", "<<E\n", "E\n", "$(", "${", "((", "))", "2>&1", "&>", "<("],
            *["nohup ", "setsid ", "disown", "wait", "exit", "echo ", " do ", " done ", "for i in 1; do "],
            *["if a; then ", " fi", "case x in a) ", " esac", "{ ", "; }", "time ", "-w ", "A=1 "],
        ]
    ),
    max_size=25,
).map("".join)


@settings(deadline=None, max_examples=300)
@given(command=st.one_of(st.text(max_size=60), SHELLISH))
def test_no_text_is_too_strange(command: str) -> None:
    better = foreground_of(command)
    if better is not None:
        assert better.strip()
        refuse_leaving(better)


SIMPLE = st.sampled_from(["a", "nohup b", "setsid c -x", "X=1 nohup d > log 2>&1", "echo '&' \\&", "e | f", "cat <<<x"])


def groups(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    forms = ["({} &)", "({})", "{{ {} & }}", "{{ {}; }}", "for i in 1 2; do {} & done", "if x; then {} & fi"]
    wrapped = st.builds(str.format, st.sampled_from(forms), inner)
    joined = st.builds("{}{}{}".format, inner, st.sampled_from([" & ", "; ", " && ", " &\n"]), inner)
    return wrapped | joined


SCRIPTS = st.builds(
    "{}{}".format,
    st.recursive(SIMPLE, groups, max_leaves=5),
    st.sampled_from(["", " &", "&\n", " & disown", " & echo $!; exit", " & wait", " & # why", " &\n\n"]),
)


@settings(deadline=None, max_examples=120)
@given(command=SCRIPTS)
def test_what_bash_can_read_stays_readable_when_foreground_of(command: str) -> None:
    better = foreground_of(command)
    if better is None:
        return
    refuse_leaving(better)
    assert "disown" not in better
    assert readable(better) or not readable(command)


@settings(deadline=None, max_examples=100)
@given(command=st.recursive(SIMPLE, groups, max_leaves=5))
def test_what_ends_in_a_background_is_refused_and_what_waits_is_not(command: str) -> None:
    assert foreground_of(f"{command} &") is not None
    assert foreground_of(f"{command}\nwait") is None


def readable(command: str) -> bool:
    done = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True, check=False)
    return done.returncode == 0
