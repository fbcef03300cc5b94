"""Links that Telegram finds without `https://`: `train.py` is a site in Paraguay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# All country endings, and those general endings that are also words or file extensions.
_ENDINGS = """
ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bv bw by bz ca cc
cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo fr ga gb
gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke
kg kh ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms mt mu
mv mw mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw
sa sb sc sd se sg sh si sj sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz
ua ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw
app best bot box cloud com data day dev digital edu email fail fast final fit fun fyi game gov group help host how
info int link live map media mil mov name net network new news next now one online open org page pictures plus
post pro prod pub read red rest rip run safe save search select shell show site software space store stream study
style support systems team tech tips today tools top total training video watch website wiki work works world wtf
xyz zero zip zone
"""
ENDINGS = frozenset(_ENDINGS.split())
_SIGN = r"0-9A-Za-z_~\u00c0-\u1fff\u2070-\uffff-"  # characters of a domain; any other character before it ends it
_DOMAIN = re.compile(rf"(?<![.{_SIGN}])[{_SIGN}]+(?:\.[{_SIGN}]+)+")
_TAIL = re.compile(r"(?::\d{1,5})?(?:[/?#][^\s<>\"«»]*)?")
_NUMBERS = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}")


def bare_urls(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each. After a letter, digit, `/`, `#` or `@`, or before an `@`, it is not a link."""
    for domain in _DOMAIN.finditer(text):
        before, behind = text[domain.start() - 1 : domain.start()], text[domain.end() : domain.end() + 1]
        if before in {"/", "#", "@"} or before.isalnum() or behind == "@":
            continue
        if _is_domain(domain[0]):
            tail = _TAIL.match(text, domain.end())
            assert tail is not None
            yield domain.start(), domain.end() + len(tail[0].rstrip(".:;,('?!`)]}"))


def _is_domain(domain: str) -> bool:
    *parts, ending = domain.split(".")
    if any(len(part) > 63 or part.endswith("-") for part in (*parts, ending)):
        return False
    if _NUMBERS.fullmatch(domain):
        return all(int(part) < 256 for part in (*parts, ending))
    mixed = ending[:1].islower() and not ending.islower()  # `train.pY` is not a link, `TRAIN.PY` is
    return "_" not in parts[-1] and not mixed and ending.lower() in ENDINGS
