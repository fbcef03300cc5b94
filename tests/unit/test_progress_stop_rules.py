"""Rules that end a job by its metrics."""

import math

import pytest

from runner.errors import UserError
from runner.progress.stop_rules import StopRule, broken_in, broken_rule, format_rules, parse_rules

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("text", "metrics", "why"),
    [
        ("nan", {"loss": NAN}, "loss=nan"),
        ("nan", {"lm loss": INF}, "lm loss=inf"),
        ("NaN", {"train_loss": -INF}, "train_loss=-inf"),
        ("nan", {"loss": 2.0, "grad_norm": NAN}, None),
        ("nan", {"loss": 1e30}, None),
        ("loss>10", {"loss": 10.5}, "loss=10.5"),
        ("loss>10", {"loss": 10.0}, None),
        ("loss>=10", {"loss": 10.0}, "loss=10"),
        ("loss>10", {"val_loss": 11.0}, None),
        ("loss > 1e1", {"loss": 11.0}, "loss=11"),
        ("accuracy<0.1", {"accuracy": 0.05}, "accuracy=0.05"),
        ("accuracy<=0.1,nan", {"accuracy": 0.2, "loss": NAN}, "loss=nan"),
        ("lm loss>3", {"lm loss": 4.0}, "lm loss=4"),
        ("grad_norm>100", {"grad_norm": INF}, "grad_norm=inf"),
    ],
)
def test_rules(text, metrics, why):
    broken = broken_rule(parse_rules(text), metrics)
    assert (broken[1] if broken else None) == why


def test_rules_are_written_as_they_are_read():
    rules = parse_rules("nan, loss>10,acc <= 0.1,nan")
    assert format_rules(rules) == "nan,loss>10,acc<=0.1"
    assert parse_rules(format_rules(rules)) == rules
    assert rules[0] == StopRule()


@pytest.mark.parametrize(
    "text", ["", "loss", "loss=10", "loss>", ">10", "loss>x", "loss>1.2.3", "nan,", "5>loss", "nan," * 8 + "nan"]
)
def test_a_wrong_rule_says_what_to_write(text):
    with pytest.raises(UserError, match="loss>10"):
        parse_rules(text)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"step 5/10 loss=nan", "loss=nan"),
        (b"{'loss': nan, 'epoch': 0.1}", "loss=nan"),
        (b'{"loss": NaN}', "loss=nan"),
        (b"iter 5: loss nan, time 3ms", "loss=nan"),
        (b"\x1b[31mloss\x1b[0m: \x1b[1mnan\x1b[0m", "loss=nan"),
        (b"train loss: inf | grad norm: 1", "train loss=inf"),
        (b"step 5 loss: 12.5", "loss=12.5"),
        (b"no loss of information, nano banana", None),
        (b"loss: 2.5 grad_norm: nan", None),
        (b"val_loss: 12.5", None),
        (b"number of nan iterations: 0 | lm loss: 2", None),
    ],
)
def test_every_line_of_the_output_counts(line, why):
    rules = parse_rules("nan,loss>10")
    block = b"step 4 loss: 2.0\n" + line + b"\rstep 6 loss: 2.0\n"
    broken = broken_in(rules, block)
    assert (broken[1] if broken else None) == why


@pytest.mark.parametrize("rule", ["loss>10", "loss>=10", "loss>10.5", "loss>1", "loss>0.5", "loss>1e300"])
@pytest.mark.parametrize(
    "value", ["9.9999", "10", "10.51", "+11.2", "0012", "1.2e1", ".2E2", "'99'", "1e301", "nan", "Inf"]
)
@pytest.mark.parametrize("sign", ["=", ": ", " ", '": '])
def test_the_quick_look_never_misses_a_value(rule, value, sign):
    [parsed] = parse_rules(rule)
    number = float(value.strip("'"))
    breaks = math.isnan(number) or parsed.broken_by({"loss": number}) is not None
    assert parsed.may_break(f"step 3 loss{sign}{value} lr 0.1234567\n".encode()) >= breaks
