import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.config import job_environment
from runner.config.job_environment import captured, carries_own_venv, fingerprint, for_job, login_environment
from runner.errors import UserError


@pytest.fixture
def own_venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the shape of a virtual environment that nightshift runs from."""
    venv = tmp_path / "nightshift-venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "prefix", str(venv))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    return venv


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with no profile yet."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_what_the_user_set_is_kept() -> None:
    mine = {
        "PATH": "/opt/conda/bin:/usr/bin:",
        "CONDA_PREFIX": "/opt/conda",
        "PYTHONPATH": "src",
        "PYTHONHOME": "/opt/python",
        "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
        "VIRTUAL_ENV": "/home/me/project/.venv",
        "BASH_ENV": "/etc/profile.d/modules.sh",
        "BASH_FUNC_module%%": "() { :; }",
        "SSH_AUTH_SOCK": "/run/agent",
        "WANDB_API_KEY": "k",
    }
    assert captured(mine) == mine
    assert not carries_own_venv(mine)


@pytest.mark.parametrize(
    "name",
    [
        "NIGHTSHIFT_TOKEN",
        "NIGHTSHIFT_HOME",
        "NIGHTSHIFT_JOB_ID",
        "CUDA_VISIBLE_DEVICES",
        "OLDPWD",
        "PWD",
        "SHLVL",
        "_",
        "COLUMNS",
        "LINES",
        "TMUX",
        "SSH_TTY",
        "__PYVENV_LAUNCHER__",
    ],
)
def test_what_is_ours_or_the_terminals_is_not(name: str) -> None:
    assert captured({name: "1", "KEPT": "1"}) == {"KEPT": "1"}


def test_our_own_venv_is_taken_out(own_venv: Path) -> None:
    environ = {
        "VIRTUAL_ENV": str(own_venv),
        "VIRTUAL_ENV_PROMPT": "nightshift",
        "_OLD_VIRTUAL_PATH": "/usr/bin",
        "PYTHONHOME": "/x",
        "PATH": f"{own_venv}/bin:/usr/bin:{own_venv}/bin/:/bin",
    }
    assert carries_own_venv(environ)
    assert captured(environ) == {"PATH": "/usr/bin:/bin"}


def test_our_own_venv_is_known_by_another_name(own_venv: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(own_venv)
    environ = {"VIRTUAL_ENV": str(link), "PATH": f"{link}/bin:/bin"}
    assert carries_own_venv(environ)
    assert captured(environ) == {"PATH": "/bin"}


def test_our_own_venv_is_known_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/gone/venv")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert captured({"PATH": "/gone/venv/bin:/bin", "VIRTUAL_ENV": "/gone/venv"}) == {"PATH": "/bin"}


def test_a_users_venv_beside_ours_stays(own_venv: Path) -> None:
    environ = {"VIRTUAL_ENV": "/me/.venv", "PYTHONHOME": "/x", "PATH": f"/me/.venv/bin:{own_venv}/bin:/bin"}
    assert captured(environ) == {**environ, "PATH": "/me/.venv/bin:/bin"}


def test_a_path_of_nothing_but_our_venv_becomes_a_usual_one(own_venv: Path) -> None:
    assert "/usr/bin" in captured({"PATH": f"{own_venv}/bin"})["PATH"].split(":")


def test_outside_a_venv_nothing_is_ours(own_venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(own_venv))
    environ = {"PATH": f"{own_venv}/bin:/bin", "VIRTUAL_ENV": str(own_venv)}
    assert not carries_own_venv(environ)
    assert captured(environ) == environ


def test_a_fingerprint_is_of_the_content() -> None:
    assert fingerprint({"A": "1", "B": "2"}) == fingerprint({"B": "2", "A": "1"})
    assert len({fingerprint(env) for env in ({}, {"A": "1"}, {"A": "2"}, {"A": "1\nB=2"}, {"A": "1", "B": "2"})}) == 5
    assert fingerprint({"A": "\udcff"}) != fingerprint({"A": "\udcfe"})
    assert fingerprint({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def job_env(base: dict[str, str], over: dict[str, str], **more: object) -> dict[str, str]:
    given = {"job_id": 12, "attempt": 2, "run_id": "0a1b2c3d", "gpu_uuids": ("GPU-a", "GPU-b"), "home": "/ns"}
    return for_job(base, over, **{**given, **more})  # type: ignore[arg-type]


def test_a_job_knows_what_it_is() -> None:
    assert job_env({"PATH": "/bin", "A": "1", "B": "1"}, {"B": "2"}) == {
        "A": "1",
        "B": "2",
        "PATH": "/bin:/ns/bin",
        "PYTHONUNBUFFERED": "1",
        "NIGHTSHIFT_JOB_ID": "12",
        "NIGHTSHIFT_RUN_ID": "0a1b2c3d",
        "NIGHTSHIFT_ATTEMPT": "12.2.0a1b2c3d",
        "NIGHTSHIFT_HOME": "/ns",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_a_job_sees_the_gpus_it_holds_whatever_anybody_says() -> None:
    said = {"CUDA_VISIBLE_DEVICES": "7", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "NIGHTSHIFT_ATTEMPT": "1.1.x"}
    env = job_env(said, said)
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert env["NIGHTSHIFT_ATTEMPT"] == "12.2.0a1b2c3d"
    assert job_env({}, said, gpu_uuids=())["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("layers", [({"NIGHTSHIFT_TOKEN": "t"}, {}), ({}, {"NIGHTSHIFT_TOKEN": "t"})])
def test_no_job_gets_the_token(layers: tuple[dict[str, str], dict[str, str]]) -> None:
    assert "NIGHTSHIFT_TOKEN" not in job_env(*layers)


def test_what_may_be_there_or_not() -> None:
    assert job_env({"PYTHONUNBUFFERED": ""}, {})["PYTHONUNBUFFERED"] == ""
    assert job_env({}, {"PYTHONUNBUFFERED": "0"})["PYTHONUNBUFFERED"] == "0"
    assert job_env({}, {}, batch_size=96)["NIGHTSHIFT_BATCH_SIZE"] == "96"
    assert job_env({"PWD": "/x"}, {}, folder="/work")["PWD"] == "/work"
    assert job_env({}, {})["PATH"].endswith("/bin:/ns/bin")
    assert job_env({"PATH": "/bin:/ns/bin"}, {})["PATH"] == "/bin:/ns/bin"


def test_a_login_environment_is_what_profiles_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKED", "1")
    monkeypatch.setenv("NIGHTSHIFT_TOKEN", "t")
    (home / ".profile").write_text("echo hello; echo oops >&2\nexport FROM_PROFILE='a\nb' LOCAL=1\ncd /\n")
    env = login_environment(str(home), None)
    assert env["FROM_PROFILE"] == "a\nb"
    assert env["HOME"] == str(home)
    assert not {"LEAKED", "NIGHTSHIFT_TOKEN", "PWD", "SHLVL", "_"} & env.keys()


def test_a_login_starts_from_who_and_where_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("SHELL", "/bin/zsh")
    monkeypatch.delenv("LANG", raising=False)
    monkeypatch.delenv("LOGNAME", raising=False)
    env = job_environment._bare_environment()
    assert env.keys() == {"HOME", "USER", "LOGNAME", "SHELL", "LANG", "PATH"}
    assert (env["HOME"], env["USER"], env["SHELL"], env["LANG"]) == (str(home), "ada", "/bin/zsh", "C.UTF-8")


def test_the_activate_line_runs_in_the_folder_and_may_use_functions(home: Path, tmp_path: Path) -> None:
    (tmp_path / "conda.sh").write_text(
        "echo args=$#; conda() { export CONDA_DEFAULT_ENV=$2 ARGS=$#; PATH=/envs/$2/bin:$PATH; }\n"
    )
    (home / ".profile").write_text("cd /\n")
    env = login_environment(str(tmp_path), "source conda.sh; conda activate torch  # mine")
    assert env["CONDA_DEFAULT_ENV"] == "torch"
    assert env["PATH"].startswith("/envs/torch/bin:")


def test_a_sourced_script_sees_no_arguments(home: Path, tmp_path: Path) -> None:
    (tmp_path / "vars.sh").write_text('[ $# -eq 0 ] || return 3\nexport COUNT="$#"\n')
    assert login_environment(str(tmp_path), ". ./vars.sh")["COUNT"] == "0"


def test_a_real_venv_is_activated(home: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    env = login_environment(str(tmp_path), "source v/bin/activate")
    assert env["VIRTUAL_ENV"] == str(tmp_path / "v")
    found = subprocess.run(["bash", "-c", "command -v python"], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(tmp_path / "v" / "bin" / "python")


def test_a_failing_activate_line_is_shown_with_its_last_words(home: Path) -> None:
    line = "seq 100; echo 'no such env: torch' >&2; (exit 3)"
    with pytest.raises(UserError) as refused:
        login_environment(str(home), line)
    first, *rest = str(refused.value).splitlines()
    assert first == f"the activate line failed (exit 3): {line}"
    assert rest[-2:] == ["100", "no such env: torch"]
    assert len(rest) == 5


@pytest.mark.parametrize("line", ["exit 0", "if", "source missing.sh"])
def test_an_activate_line_that_ends_the_shell_is_a_failure(home: Path, line: str) -> None:
    with pytest.raises(UserError, match="the activate line failed"):
        login_environment(str(home), line)


def test_a_profile_that_ends_the_shell_is_a_failure(home: Path) -> None:
    (home / ".profile").write_text("echo go away\nexit 4\n")
    with pytest.raises(UserError, match=r"login shell failed \(exit 4\)(.|\n)*go away"):
        login_environment(str(home), None)


def test_a_login_that_hangs_is_stopped_with_all_it_started(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_environment, "_LOGIN_LIMIT_S", 0.3)
    with pytest.raises(UserError, match=r"took longer than 0\.3 s"):
        login_environment(str(home), f"sleep 30 & echo $! > {home}/pid; sleep 30")
    assert ended(int((home / "pid").read_text()))


def test_an_agent_started_by_a_profile_holds_nothing_up(home: Path) -> None:
    (home / ".profile").write_text(f"sleep 600 & echo $! > {home}/pid\n")
    login_environment(str(home), None)
    os.kill(int((home / "pid").read_text()), 9)


def test_without_bash_sh_will_do(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    monkeypatch.setattr(job_environment, "_PATH", str(tools))
    (home / ".profile").write_text("export SEEN=1\n")
    assert login_environment(str(home), "export B='a b'").items() >= {"SEEN": "1", "B": "a b"}.items()
    (tools / "sh").unlink()
    with pytest.raises(UserError, match="neither bash nor sh"):
        login_environment(str(home), None)


def test_a_folder_that_is_not_there(home: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        login_environment(str(home / "gone"), None)


def ended(pid: int) -> bool:
    """True once the process is gone or a zombie that nobody has collected yet."""
    for _ in range(4000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False
