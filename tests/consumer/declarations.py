"""What a header declares and does not define: a user of the shared library links it only where it
has OCTAVO_API, on itself or on its class.

    hidden_declarations(text) -> ["device_backend", "Verification::errors"]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
ATTRIBUTE = re.compile(r"\[\[.*?\]\]")
TEMPLATE_ARGUMENTS = re.compile(r"(?<!operator)<[^<>;{}]*>")
ACCESS = re.compile(r"\b(?:public|protected|private)\s*:(?!:)")
TYPE = re.compile(r"(?:class|struct|union)\s+(?:OCTAVO_API\s+)?(\w+)")
# Defined here, or a declaration of no function.
ELSEWHERE = re.compile(
    r"(?:template|using|typedef|friend|enum|static_assert)\b|.*\b(?:inline|constexpr)\b"
)
NOT_DEFINED = re.compile(r"=\s*(?:default|delete|0)$")
INITIALIZER = re.compile(r"(?<!operator)(?<!operator=)=.*")
FUNCTION = re.compile(r"(operator\s*\S+?|~?\w+)\s*\((?!\s*\*)")


def plain(header: str) -> str:
    text = COMMENT.sub(" ", header)
    text = ATTRIBUTE.sub(" ", STRING.sub('""', PREPROCESSOR.sub("", text)))
    return ACCESS.sub(" ", text)


def end_of_block(text: str, begin: int) -> int:
    depth = 0
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError("a brace that is not closed")


def statements(text: str) -> Iterator[tuple[str, str | None]]:
    """The declarations of one scope, each with the content of its braces, if it has any."""
    head, body, parentheses, at = "", None, 0, 0
    while at < len(text):
        char = text[at]
        parentheses += {"(": 1, ")": -1}.get(char, 0)
        if char == ";" and parentheses == 0:
            yield " ".join(head.split()), body
            head, body = "", None
        elif char == "{" and parentheses == 0:
            end = end_of_block(text, at)
            body, at = text[at + 1 : end], end
            start = " ".join(head.split())
            # Behind a type or an initializer comes a semicolon, behind a function nothing.
            if start.startswith("namespace") or FUNCTION.search(without_arguments(start)):
                yield start, body
                head, body = "", None
        else:
            head += char
        at += 1


def without_arguments(head: str) -> str:
    while (shorter := TEMPLATE_ARGUMENTS.sub("", head)) != head:
        head = shorter
    return head


def hidden_in(text: str, scope: str, exported: bool) -> Iterator[str]:
    for head, body in statements(text):
        if head.startswith("namespace") and body is not None:
            yield from hidden_in(body, scope, exported)
        elif ELSEWHERE.match(head):
            continue
        elif (found := TYPE.match(head)) and body is not None:
            yield from hidden_in(body, f"{found[1]}::", exported or "OCTAVO_API" in head)
        elif body is None and not exported and "OCTAVO_API" not in head:
            function = FUNCTION.search(INITIALIZER.sub("", without_arguments(head)))
            if function and not NOT_DEFINED.search(head):
                yield scope + function[1]


def hidden_declarations(header: str) -> list[str]:
    return list(hidden_in(plain(header), "", exported=False))
