"""Parses shell text far enough to tell commands, separators and `&` apart. Runs and expands nothing. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple


class UnreadableError(ValueError):
    """The shell text cannot be parsed. If it is really wrong, the shell itself will say why."""


class Token(NamedTuple):
    """A word or an operator, and its position."""

    text: str
    start: int
    end: int
    operator: bool


class Piece(NamedTuple):
    """A token and its role."""

    role: str  # one of the names in _Parts
    text: str
    start: int
    end: int
    depth: int  # number of open groups after this token
    in_loop: bool


_BLANK = re.compile(r"(?:[ \t\r]|\\\n|#[^\n]*)*")
_OPERATOR = re.compile(r"[0-9]*(?:<<<|<<-|<<|<>|<&|>>|>&|>\||<|>)|&>>|&>|&&|;;&|;&|;;|\|\||\|&|[&;|()\n]")
_PLAIN = re.compile(r"(?:[^ \t\r\n|&;<>()'\"`$\\]|\\.|'[^']*'|\$'(?:[^'\\]|\\.)*'|\$(?![({']))+", re.DOTALL)
_HEREDOC = re.compile(r"[0-9]*<<(-?)")
_WORD_END = " \t\r\n|&;<>()"

# Text to skip inside each kind of bracket, by the character that closes the bracket.
_INSIDE = {
    '"': re.compile(r"(?:[^\"\\`$]|\\.|\$(?![({]))+", re.DOTALL),
    "`": re.compile(r"(?:[^`\\]|\\.)+", re.DOTALL),
    "}": re.compile(r"(?:[^\"\\`${}]|\\.|\$(?![({]))+", re.DOTALL),
    ")": re.compile(r"(?:(?<![^\s;&|(])#[^\n]*|[^\"'\\`$()]|\\.|'[^']*'|\$'(?:[^'\\]|\\.)*'|\$(?![({']))+", re.DOTALL),
}
_DEEPEST = 100  # nesting limit: what looks like arithmetic but is not is read again at each level
_BRACKET = re.compile(r"\$\(|\$\{|[({\"`]")
_CLOSED_BY = {"$(": ")", "(": ")", "${": "}", "{": "}", '"': '"', "`": "`"}


# The parts of a word, and the white space between words. Quotes may contain anything.
_PART = re.compile(
    r"""(?P<bare>[^ \t\r\n'"\\]+)|\\(?P<escaped>.)|'(?P<single>[^']*)'"""
    r"""|"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"|(?P<between>[ \t\r\n]+)""",
    re.DOTALL,
)
_IN_DOUBLE = re.compile(r'\\(["\\])')


def split(text: str) -> list[str]:
    """Split text like `shlex.split`, which takes quadratic time for long words. Raise ValueError if a quote is open."""
    words: list[str] = []
    word: list[str] = []
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise ValueError("a quote or a backslash is left open")
        if part.lastgroup != "between":
            piece = part[part.lastgroup or 0]
            word.append(_IN_DOUBLE.sub(r"\1", piece) if part.lastgroup == "double" else piece)
        elif word:
            words.append("".join(word))
            word = []
        at = part.end()
    return [*words, "".join(word)] if word else words


def _past_bracket(text: str, at: int) -> int:
    """Return the position after the quote, substitution or parenthesis that opens at `at`."""
    waiting: list[str] = []
    while True:
        closing = waiting[-1] if waiting else None
        if closing and (skipped := _INSIDE[closing].match(text, at)):
            at = skipped.end()
        elif closing and text.startswith(closing, at):
            waiting.pop()
            at += 1
        elif opened := _BRACKET.match(text, at):
            waiting.append(_CLOSED_BY[opened[0]])
            at = opened.end()
            if len(waiting) > _DEEPEST:
                raise UnreadableError("too much stands inside one another")
        else:
            raise UnreadableError("something is left open")
        if not waiting:
            return at


def _past_word(text: str, start: int) -> int:
    at = start
    while at < len(text):
        if plain := _PLAIN.match(text, at):
            at = plain.end()
        elif text[at] in '"`$' or (text[at] == "(" and at > start and text[at - 1] == "="):
            at = _past_bracket(text, at)
        elif text[at] in _WORD_END:
            break
        else:
            raise UnreadableError("a quote is left open")
    return at


def _opaque_end(text: str, at: int) -> int | None:
    """Return the end of `((arithmetic))` or `<(process substitution)`, which are not parsed; None if it is neither."""
    if text.startswith(("<(", ">("), at):
        return _past_bracket(text, at + 1)
    if text.startswith("((", at):
        end = _past_bracket(text, at)
        return end if text.endswith("))", at, end) else None
    return None


def _token(text: str, at: int) -> Token:
    if (end := _opaque_end(text, at)) is not None:
        return Token(text[at:end], at, end, operator=False)
    if operator := _OPERATOR.match(text, at):
        return Token(operator[0], at, operator.end(), operator=True)
    end = _past_word(text, at)
    return Token(text[at:end], at, end, operator=False)


def tokens(text: str) -> list[Token]:
    """Return the words and operators of shell text, without comments and the bodies of here-documents."""
    read: list[Token] = []
    bodies: list[tuple[str, bool]] = []
    at = _past_blank(text, 0)
    while at < len(text):
        token = _token(text, at)
        at = token.end
        if read and read[-1].operator and (mark := _HEREDOC.fullmatch(read[-1].text)):
            bodies.append((re.sub(r"['\"\\]", "", token.text), bool(mark[1])))
        if token.text == "\n":
            at = _past_bodies(text, at, bodies)
        read.append(token)
        at = _past_blank(text, at)
    return read


def _past_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _past_bodies(text: str, at: int, bodies: list[tuple[str, bool]]) -> int:
    for end_mark, indented in bodies:
        line = None
        while at < len(text) and line != end_mark:
            end = text.find("\n", at) + 1 or len(text)
            line = text[at:end].rstrip("\n")
            line, at = line.lstrip("\t") if indented else line, end
    bodies.clear()
    return at


_OPENS = {"{": "}", "do": "done", "if": "fi", "case": "esac"}
_CLOSES = frozenset(_OPENS.values())
_PREFIXES = frozenset({"then", "else", "elif", "while", "until", "!", "time", "exec", "command"})
_DETACHERS = frozenset({"nohup", "setsid"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=", re.ASCII)
_ENDLESS = frozenset({"separator", "background", "open", "prefix"})  # no operator like `&`, `;` or `|` may follow these


class _Parts:
    """Gives each token its role, in one pass."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self._waiting: list[str] = []  # the closing words of the open groups, innermost last
        self._loops = 0
        self._at_command = True  # the next word may be a command's name

    def add(self, token: Token) -> None:
        role = self._of_operator(token.text) if token.operator else self._of_word(token.text)
        piece = Piece(role, token.text, token.start, token.end, len(self._waiting), self._loops > 0)
        self.pieces.append(piece)

    def finish(self) -> list[Piece]:
        unfinished = self.pieces and self.pieces[-1].text in ("&&", "||", "|", "|&")
        if self._waiting or self._last() == "redirection" or unfinished:
            raise UnreadableError("something is left open")
        return self.pieces

    def _last(self) -> str | None:
        return self.pieces[-1].role if self.pieces else None

    def _of_operator(self, text: str) -> str:
        if self._last() == "redirection":
            raise UnreadableError("a redirection leads nowhere")
        if "<" in text or ">" in text:
            return "redirection"
        self._at_command = True
        if text == "(":
            return self._open(")")
        if text == ")" and self._waiting[-1:] != ["esac"]:
            return self._close(")")
        if text in ("&", ";", "&&", "||", "|", "|&") and self._last() in (None, *_ENDLESS):
            raise UnreadableError(f"nothing before {text}")
        return "background" if text == "&" else "separator"

    def _of_word(self, text: str) -> str:
        if self._last() == "redirection":
            return "target"
        if not self._at_command:
            return "argument"
        if text in _OPENS:
            self._at_command = text != "case"
            return self._open(_OPENS[text])
        return self._close(text) if text in _CLOSES else self._of_command_word(text)

    def _of_command_word(self, text: str) -> str:
        """Return the role of a word where a command may begin. Only the command's name ends that place."""
        if text in _PREFIXES:
            return "prefix"
        if _ASSIGNMENT.match(text):
            return "assignment"
        if text in _DETACHERS or (self._last() == "detacher" and text.startswith("-")):
            return "detacher"
        self._at_command = False
        return "command"

    def _open(self, closing: str) -> str:
        self._waiting.append(closing)
        self._loops += closing == "done"
        return "open"

    def _close(self, closing: str) -> str:
        if not self._waiting or self._waiting.pop() != closing:
            raise UnreadableError(f"{closing} closes nothing")
        self._loops -= closing == "done"
        return "close"


def pieces(text: str) -> list[Piece]:
    """Return the tokens of shell text with their roles. Raise UnreadableError if it cannot be parsed."""
    parts = _Parts()
    for token in tokens(text):
        parts.add(token)
    return parts.finish()
