import base64
import html
import json
import random
from urllib.parse import quote

import pytest

from bot.secrets.names import looks_secret, secret_values
from bot.secrets.redact import REDACTED, Redactor
from bot.text.html import bold, code, link, pre
from bot.text.log_excerpt import presentable
from tests.telegram.html_text import parse_html

# Put together here so that no scanner takes them for real ones.
HEX40 = "0123456789abcdef0123456789abcdef01234567"
MIXED = "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW"
BOT_TOKEN = "123456789:" + "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
SLASHED = "/K7MDENGbPxRfiCY3XAMPLEKEY9wJalrXUtnFEM"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\n+abc/DEF==\n-----END RSA " + "PRIVATE KEY-----"

plain = Redactor([])


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"bot {BOT_TOKEN} up", BOT_TOKEN),
        (f"https://api.telegram.org/bot{BOT_TOKEN}/getMe", BOT_TOKEN.partition(":")[2]),
        (f"https://x/bot{BOT_TOKEN.replace(':', '%3A')}/getMe", BOT_TOKEN.partition(":")[2]),
        ("id AKIA" + "IOSFODNN7EXAMPLE", "AKIA" + "IOSFODNN7EXAMPLE"),
        ("ASIA" + "IOSFODNN7EXAMPL3,", "ASIA" + "IOSFODNN7EXAMPL3"),
        (f"aws_secret_access_key = {AWS_SECRET}", AWS_SECRET),
        (f"AWS_SECRET_ACCESS_KEY={SLASHED}", SLASHED),
        (f'{{"SecretAccessKey": "{AWS_SECRET}"}}', AWS_SECRET),
        ("ghp_" + MIXED, "ghp_" + MIXED),
        ("using gho_" + MIXED + ".", "gho_" + MIXED),
        ("github_pat_" + "11ABCDEFG0_" + MIXED, MIXED),
        ("login with hf_" + MIXED, "hf_" + MIXED),
        ("sk-" + MIXED, "sk-" + MIXED),
        ("sk-proj-" + MIXED, MIXED),
        ("sk-ant-api03-" + MIXED + "-AA", MIXED),
        ("xoxb-" + "123456789012-abcdefghij", "123456789012-abcdefghij"),
        ("AIza" + "SyA1234567890abcdefghijklmnopqrstuv", "SyA1234567890"),
        ("glpat-" + "abcdefghij1234567890", "abcdefghij1234567890"),
        ("npm_" + "a" * 18 + "B7" * 9, "B7" * 9),
        ("pypi-AgEI" + "cHlwaS5vcmc" * 4, "cHlwaS5vcmc"),
        ("sk_live_" + MIXED, MIXED),
        ("SG." + MIXED[:22] + "." + MIXED, MIXED),
        (f"WANDB_API_KEY={HEX40}", HEX40),
        (f"$ wandb login {HEX40}", HEX40),
        (f"wandb: Paste an API key from your profile and hit enter: {HEX40}", HEX40),
        (f"machine api.wandb.ai login user password {HEX40}", HEX40),
        (f"cookie {JWT}; x", JWT),
        (f"key:\n{PEM}\nafter", "MIIEowIBAAKCAQEA7"),
        ("Authorization: Bearer abc.def-ghi", "abc.def-ghi"),
        ("{'Authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
        ("curl -H 'authorization: token 0a1b2c3d4e'", "0a1b2c3d4e"),
        ("git clone https://ada:hunter2@git.example/x.git", "hunter2"),
        ("redis://:s3cret@10.0.0.1:6379/0", "s3cret"),
        ("export COMET_KEY=qwertyuiop", "qwertyuiop"),
        ("PASSWORD=hunter2", "hunter2"),
        ("db_password: 'p w d'", "p w d"),
        ("'password': \"it's\\\"me\", 'x'", "me"),
        ('{"client_secret":"abc","x":1}', "abc"),
        (json.dumps(json.dumps({"api_key": "zzz999"})), "zzz999"),
        ("train.py --api-key zzz999 --lr 3", "zzz999"),
        ("train.py --hf-token=zzz999", "zzz999"),
        ("x-api-key: zzz999", "zzz999"),
        ('os.environ["MY_TOKEN"] = "zzz999"', "zzz999"),
        ("Config(api_key='zzz999', lr=1)", "zzz999"),
        ("f(access_token=zzz999, lr=1)", "zzz999"),
        ("GET /x?access_token=zzz999&page=2", "zzz999"),
        ("accessToken: zzz999", "zzz999"),
        ("SMTP_PASS=zzz999", "zzz999"),
        ("DB_PWD=zzz999", "zzz999"),
        ("API_KEY_2=zzz999", "zzz999"),
        (f"token={MIXED}", MIXED),
        (f"key: {MIXED}", MIXED),
        ("\x1b[32mAPI_KEY\x1b[0m=\x1b[1mzzz999\x1b[0m", "zzz999"),
        ("X-Amz-Signature=0a1b2c3d4e5f60718293", "0a1b2c3d4e5f60718293"),
    ],
)
def test_hidden(text: str, secret: str) -> None:
    told = plain.text(text)
    assert secret not in told
    assert REDACTED in told
    assert plain.text(told) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("train.py --api-key zzz999 --lr 3", "train.py --api-key [redacted] --lr 3"),
        ("f(access_token=zzz999, lr=1)", "f(access_token=[redacted], lr=1)"),
        ("dict(api_key=zzz999,lr=1)", "dict(api_key=[redacted],lr=1)"),
        ("GET /x?access_token=zzz999&page=2 HTTP", "GET /x?access_token=[redacted]&page=2 HTTP"),
        ('{"client_secret":"abc","x":1}', '{"client_secret":"[redacted]","x":1}'),
        ("https://ada:hunter2@git.example/x", "https://ada:[redacted]@git.example/x"),
        (f"a\n{PEM}\nb", "a\n[redacted]\nb"),
        (f"https://api.telegram.org/bot{BOT_TOKEN}/getMe", "https://api.telegram.org/bot[redacted]/getMe"),
    ],
)
def test_what_stands_around_a_secret_stays(text: str, told: str) -> None:
    assert plain.text(text) == told


ORDINARY = """\
2024-05-01 12:00:00,123 INFO root: step 100 loss=0.4123 lr=3e-4 tokens/s=123456 tokens=1000000 mem=20.1GiB
Setting `pad_token_id` to `eos_token_id`:50256 for open-end generation.
GenerationConfig { "bos_token_id": 1, "eos_token_id": 2, "max_new_tokens": 1000000, "pad_token_id": 0 }
PreTrainedTokenizerFast(name_or_path='gpt2', vocab_size=50257, eos_token='<|endoftext|>', pad_token: '[PAD]')
tokenizer=LlamaTokenizerFast(name_or_path='meta-llama/Llama-2-7b-hf', special_tokens={'bos_token': '<s>'})
max_tokens=1000000 --num_keys 8 pad_token_id=0 MONKEY=banana1234567 keys: dict_keys(['input_ids', 'labels'])
key=value key: model.layers.12.self_attn.q_proj.weight key=resnet50_fpn_v2_Weights_COCO_V1_backbone
d_key: 64 n_keys=8 past_key_values=None key_padding_mask=tensor([1, 0]) query_key_value: 3072
cache_key=0a1b2c3d4e5f60718293a4b5c6d7e8f9 primary_key: id sort_key=created_at
KeyError: 'labels'
Missing key(s) in state_dict: "encoder.layer.0.attention.self.query.weight".
Unexpected key(s) in state_dict: "module.key.weight"; Keyboard: us
author: Ada authors=['Ada'] authenticated as ada, authority=low
forward pass: 12.3 ms backward_pass=34 ms second_pass: 3 tests: 12 passed, 1 failed, pass: 12 pass=False
next token: the token: 1234 first_token=Hello per_token=0.3 token='world' Token 5/100
PWD=/home/ada/proj OLDPWD=/home/ada GOOGLE_APPLICATION_CREDENTIALS=/home/ada/gcp.json SSH_AUTH_SOCK=/tmp/ssh/agent.1
use_auth=True use_auth_token=None token=None api_key=None password: null HF_TOKEN=
api_key=$OPENAI_API_KEY api_key=${KEY} api_key=os.environ["OPENAI_API_KEY"] token=get_token()
commit 3f786850e387550fdab836ed7e6dc881de23001b sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
GPU-8f3c1a7e-1b2c-4d5e-9f60-718293a4b5c6 NVIDIA A100-SXM4-80GB run id x7k2mq1z
wandb: 🚀 View run fancy-sun-12 at: https://wandb.ai/ada/vision/runs/x7k2mq1z
wandb: Run data is saved locally in /home/ada/wandb/run-20240501_120000-x7k2mq1z
wandb: git commit 3f786850e387550fdab836ed7e6dc881de23001b
  File "/home/ada/auth.py", line 12, in login_key
    return store[key]
http://localhost:8080/a@b tcp://10.0.0.1:29500 ada@example.com 12:33:11 s3://bucket/key=1/part-000.parquet
Downloading tokenizer.json: 100%|██████████| 2.11M/2.11M [00:00<00:00, 12.1MB/s]
task-scheduler-with-a-very-long-name disk-usage-report-of-the-night mask-rcnn-resnet50-fpn-v2-coco-weights
sk-learn-compatible-estimator-checks hf_hub_download(repo_id='x') npm_config_cache=/tmp npm_lifecycle_event=test
1714560000:train_loss_of_a_very_long_metric_name_here 123456:0123456789abcdef0123456789abcdef01234567
Bearer of bad news: the bearer was late; password length: 12, password_file=/run/secrets/db
secret_name: db-credentials token_type: bearer key_id=abc credentials_path=/x/y
Übergröße 数据 🚀 done == ok; a==b; token == other; std::auth::x
"""


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_ordinary_logs_are_left_alone(line: str) -> None:
    assert plain.text(line) == line


def test_all_of_them_together_too() -> None:
    text = ORDINARY * 50
    assert plain.text(text) == text
    assert b"".join(plain.stream([text.encode()])) == text.encode()


ODD = 'p&ss "w<ö>rd"/+1'


@pytest.mark.parametrize(
    "written",
    [
        ODD,
        quote(ODD),
        quote(ODD, safe=""),
        quote(ODD, safe="").lower(),
        html.escape(ODD),
        html.escape(ODD, quote=False),
        json.dumps(ODD)[1:-1],
        json.dumps(ODD, ensure_ascii=False)[1:-1],
        repr(ODD)[1:-1],
        f"\x1b[1m{ODD[:5]}\x1b[0m\x1b[32m{ODD[5:]}",
    ],
)
def test_a_known_secret_is_found_however_it_is_written(written: str) -> None:
    assert Redactor([ODD]).text(f"say {written} now").endswith("say [redacted] now".removeprefix("say "))
    assert written not in Redactor([ODD]).text(f"say {written} now")


@pytest.mark.parametrize("before", ["", "a", "ab", "user:", "user1:"])
def test_a_known_secret_is_found_in_base64(before: str) -> None:
    secret = "correct-horse-battery"
    encoded = base64.b64encode(f"{before}{secret}x".encode()).decode()
    told = Redactor([secret]).text(f"Basic {encoded}!")
    kept = told.replace(REDACTED, "").removeprefix("Basic ").removesuffix("!")
    assert REDACTED in told
    assert len(kept) <= len(before) * 4 // 3 + 6
    decoded = base64.b64decode(kept + "=" * (-len(kept) % 4) if len(kept) % 4 != 1 else kept[:-1], validate=False)
    assert b"horse" not in decoded


@pytest.mark.parametrize(
    "value",
    [
        "",
        "1",
        "true",
        "none",
        "abc12",
        "123456",
        "training",
        "Secret",
        "/home/ada/key.pem",
        "~/x/y",
        "password",
        "0.001",
        "${X}",
    ],
)
def test_trivial_values_are_no_secrets(value: str) -> None:
    assert Redactor([value]).secrets == frozenset()
    text = f"the value is {value} today"
    assert Redactor([value]).text(text) == text


def test_an_excerpt_that_begins_or_ends_within_a_secret() -> None:
    redactor = Redactor([BOT_TOKEN])
    assert redactor.text(f"{BOT_TOKEN[-20:]} went by") == "[redacted] went by"
    assert redactor.text(f"seen {BOT_TOKEN[:20]}") == "seen [redacted]"


def test_markup_stays_markup() -> None:
    redactor = Redactor(["hunter22&<x>"])
    parts = (
        bold("API_KEY=zzz999"),
        code("--token " + MIXED),
        pre(PEM),
        link("x", "https://a.b/?token=" + MIXED + "&b=1"),
        pre("hunter22&<x>"),
    )
    told = redactor.text("".join(parts))
    text, entities = parse_html(told)
    assert [entity.type for entity in entities] == ["bold", "code", "pre", "text_link", "pre"]
    for secret in ("zzz999", MIXED, "MIIEow", "hunter22"):
        assert secret not in told
        assert secret not in text


def test_of_a_stream_every_way_to_split_it_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.secrets.redact._PIECE", 4096)
    monkeypatch.setattr("bot.secrets.redact._HELD", 1024)
    numbers = random.Random(7)
    secrets = ["correct-horse-battery", "zwölf&Boxkämpfer", BOT_TOKEN]
    redactor = Redactor(secrets)
    pieces = [f"line {n} of a log\n" for n in range(400)]
    for n in range(0, 400, 7):
        pieces[n] += numbers.choice([*secrets, "api_key=zzz999 ", f"{PEM}\n", "\x1b[1mcorrect-\x1b[0mhorse-battery"])
    data = "".join(pieces).encode()
    whole = redactor.data(data)
    for size in (1, 7, 100, 1000, 4096, 100_000):
        told = b"".join(redactor.stream(data[at : at + size] for at in range(0, len(data), size)))
        assert told == whole, size
    for secret in (*secrets, "zzz999", "MIIEow"):
        assert secret.encode() not in whole


def test_one_endless_line_loses_its_secrets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.secrets.redact._PIECE", 4096)
    monkeypatch.setattr("bot.secrets.redact._HELD", 1024)
    data = b" ".join([b"x" * 50, b"--api-key zzz999", b"correct-horse-battery"] * 500)
    told = b"".join(Redactor(["correct-horse-battery"]).stream(data[at : at + 333] for at in range(0, len(data), 333)))
    assert b"zzz999" not in told
    assert b"horse" not in told
    assert told.count(b"[redacted]") == 1000


def test_lines() -> None:
    told = list(plain.lines(["a", "API_KEY=zzz999", *PEM.split("\n"), "größe", ""]))
    assert told == ["a", "API_KEY=[redacted]", "[redacted]", "größe", ""]
    assert list(plain.lines([])) == []


@pytest.mark.parametrize(
    "data", [b"", b"\x1b", b"\xff" * 1000, b"token=" * 50_000, b'"' * 100_000, b"password=" + b"a" * 2_000_000]
)
def test_nothing_is_too_strange(data: bytes) -> None:
    assert b"".join(plain.stream([data])) == plain.data(data)


@pytest.mark.parametrize(
    "name",
    [
        "API_KEY",
        "OPENAI_API_KEY",
        "HF_TOKEN",
        "token",
        "TOKEN",
        "KEY",
        "SECRET",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "DB_PASS",
        "PGPASSWORD",
        "MYSQL_PWD",
        "SMTP_AUTH",
        "GITHUB_CREDENTIALS",
        "apiKey",
        "accessToken",
        "client_secret",
        "API_KEY_2",
        "NIGHTSHIFT_TOKEN",
        "COMET_KEY",
        "Authorization",
        "x-api-key",
        "ssh_private_key",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "MONKEY",
        "tokenizer",
        "TOKENIZERS_PARALLELISM",
        "max_tokens",
        "num_keys",
        "pad_token_id",
        "eos_token",
        "PWD",
        "OLDPWD",
        "key",
        "KEYBOARD",
        "AUTHOR",
        "SSH_AUTH_SOCK",
        "TOKEN_FILE",
        "AWS_ACCESS_KEY_ID",
        "PASSWORD_FILE",
        "forward_pass",
        "PATH",
        "",
        "past_key_values",
        "SECRET_NAME",
        "CUDA_VISIBLE_DEVICES",
        "cache_key",
        "BYPASS",
        "COMPASS",
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not looks_secret(name)


def test_the_secrets_of_an_environment() -> None:
    environment = {
        "OPENAI_API_KEY": "sk-12345678",
        "HF_TOKEN": "hf_abcdef",
        "USE_TOKEN": "true",
        "SSH_KEY": "/home/ada/.ssh/id",
        "PATH": "/usr/bin:/bin",
        "PWD": "/home/ada",
        "DB_PASSWORD": "12",
        "TOKENIZER": "llama-2-7b",
    }
    assert secret_values(environment) == {"sk-12345678", "hf_abcdef"}


HIDDEN = "Tr0ub4dor-and-3-staples"
BETWEEN = {
    "NUL": "\0",
    "control": "\x07",
    "vertical tab": "\x0b",
    "delete": "\x7f",
    "C1": "\x85",
    "soft hyphen": "\u00ad",
    "zero-width space": "\u200b",
    "joiner": "\u200d",
    "word joiner": "\u2060",
    "mark": "\u200e",
    "override": "\u202e",
    "selector": "\ufe0f",
    "byte order": "\ufeff",
    "tag": "\U000e0041",
    "accent": "\u0301",
    "unknown": "\ufffd",
    "escape": "\x1b[0m",
    "link": "\x1b]8;;x\x1b\\",
    "string": "\x1bPq\x1b\\",
    "one byte": "\x9b1m",
    "backspace": "x\b",
    "backspaces": "no\0!\b\b\b",
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_what_is_not_seen_hides_no_secret(between):
    shown = between.join(HIDDEN)
    redactor = Redactor([HIDDEN])
    assert redactor.text(f"a {shown} b") == f"a {REDACTED} b"
    assert redactor.data(f"a {shown} b".encode()) == f"a {REDACTED} b".encode()
    assert presentable(f"a {shown} b\n".encode(), redactor) == f"a {REDACTED} b\n"
    assert presentable(f"HF_TOKEN={between.join('hf_' + MIXED)}\n".encode(), plain) == f"HF_TOKEN={REDACTED}\n"


@pytest.mark.parametrize("wide", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("secret", [HIDDEN, "pässwörd-ÿ-123"])
def test_in_wide_characters(wide, secret):
    shown = presentable(b"x " + f"{secret} ".encode(wide) + b"\n", Redactor([secret]))
    assert REDACTED in shown or (wide == "utf-32" and not secret.isascii())
    assert secret not in shown
    assert secret[-8:] not in shown


@pytest.mark.parametrize(
    "form",
    [
        HIDDEN.encode().hex(),
        HIDDEN.encode().hex().upper(),
        HIDDEN.encode().hex(" "),
        HIDDEN.encode().hex(":"),
        repr(HIDDEN.encode().hex(",")),
    ],
)
def test_in_hex(form):
    shown = Redactor([HIDDEN]).text(f"dump {form} end")
    assert (REDACTED in shown) is ("," not in form)


def test_a_byte_that_is_no_text_hides_no_secret():
    shown = b"\xff".join(bytes([byte]) for byte in HIDDEN.encode())
    assert Redactor([HIDDEN]).data(b"a " + shown) == b"a " + REDACTED.encode()
    assert presentable(b"a " + shown + b"\n", Redactor([HIDDEN])) == f"a {REDACTED}\n"


def test_what_a_terminal_would_erase_in_part_is_hidden_first():
    assert HIDDEN[:-3] not in presentable(f"{HIDDEN}\b\b\b!\n".encode(), Redactor([HIDDEN]))
    assert HIDDEN not in presentable(f"no\r{HIDDEN}\n".encode(), Redactor([HIDDEN]))


def test_what_is_near_a_hidden_secret_stays():
    text = "été\u200b \x1b[1mnaïve\x1b[0m 🚀\n"
    assert Redactor([HIDDEN]).text(text) == text
    assert Redactor([HIDDEN]).text(f"{text}é{HIDDEN}🚀") == f"{text}é{REDACTED}🚀"
    assert Redactor([HIDDEN]).text(f"\u200b{HIDDEN}\n\b\b{HIDDEN}") == f"\u200b{REDACTED}\n\b\b{REDACTED}"


def test_a_part_of_a_very_long_secret_is_hidden():
    secret = "".join(random.Random(1).choices("abcdefghijkABCDEFGHIJK0123456789", k=20_000))
    redactor = Redactor([secret])
    for cut in (secret[3000:9000], secret[:9000], secret[9000:]):
        assert redactor.text(f"x {secret} y") == f"x {REDACTED} y"
        assert len(redactor.text(cut)) < 1100


def test_of_a_long_text_its_ends_are_shown_without_secrets():
    long = f"export HF_TOKEN=hf_{MIXED}\n" + "step\n" * 60_000 + f"echo {HIDDEN}\n"
    shown = Redactor([HIDDEN]).ends(long)
    assert len(shown) < 40_000
    assert shown.startswith(f"export HF_TOKEN={REDACTED}\nstep\n")
    assert shown.endswith(f"step\necho {REDACTED}\n")
