# SPDX-License-Identifier: GPL-2.0
"""Finds words that make a comment or a page hard to read.

The check reads comments of Rust and C sources and of scripts, comments and docstrings of Python,
and the paragraphs of the pages. It leaves out code, literals and quoted text. A phrase may continue
on the next line.

Limits: the check finds words, not sentences. The check accepts an unclear sentence that consists of
plain words.
"""

import ast
import dataclasses
import io
import pathlib
import re
import tokenize

# Directories that the check leaves out. No directory may be added to this list. The comments of the
# debug kernel's builder contain words that the check would report. They are changed only together
# with the next debug kernel, because each change of the builder changes the name of the debug
# kernel.
OPEN = ("tools/debug-kernel/",)
# Pages that are left out, because a program generates them.
NOT_PAGES = ("Documentation/conformance.rst",)
# The directories in which the check reads comments, and the pattern of the pages that it reads.
SOURCES = ("rust/", "tools/", "selftests/")
PAGES = re.compile(r"(?:Documentation/[^/]+|[A-Z]+)\.(?:rst|md)$")
RUST, C = (".rs",), (".c", ".h")
PYTHON = re.compile(r"#!.*\bpython")
SHELL = re.compile(r"#!.*\b(?:ba|da)?sh\b")

PEOPLE = ("people", "person", "user", "users", "reader", "readers", "administrator",
          "administrators", "developer", "developers", "maintainer", "maintainers", "anyone",
          "everyone", "contributor", "contributors")


@dataclasses.dataclass(frozen=True)
class Entry:
    """The pattern of a bad word, the reason why the word is bad, and the words to write instead."""

    pattern: re.Pattern
    why: str
    instead: str


def entry(pattern, why, instead, flags=re.IGNORECASE):
    """Returns an `Entry`. A blank in `pattern` matches any white space."""
    return Entry(re.compile(pattern.replace(" ", r"\s+"), flags), why, instead)


NO_PERSON = "a thread, a packet or a program is no person"
ENTRIES = (
    entry(r"".join(rf"(?<!\b{noun}\s)" for noun in PEOPLE) + r"\bwhom?\b(?!')",
          NO_PERSON, "name it: the sender, the reply handler, the caller"),
    entry(r"\bwh(?:oever|omever|osoever)\b", NO_PERSON, "name it, or begin with \"if\""),
    entry(r"\b(?:nobody|somebody|anybody)\b", NO_PERSON, "name it: no thread, another sender"),
    entry(r"\b(?:has|have|having) (?:a|an|the|its|their|it|them) (?:\w+ )?"
          r"(?:do|tell|send|make|look|learn|wait|end|stop|give|take|post|go)\b",
          "\"has X do\" hides what is done", "\"makes X do\", or the verb itself"),
    entry(r"(?:\A\s*|[.:] |\b(?:after|in|of|for|with|than|from|by) )so many\b(?! that)",
          "it names no number", "\"N\", \"this many\", \"number of\""),
    entry(r"\b(?:there )?is none\b(?! of)", "it reads as a riddle",
          "\"does not exist\", \"returns `None` if\""),
    entry(r"\bshall\b", "it is not plain", "\"must\", \"should\", or the present tense"),
    entry(r"\bmeanwhile\b", "it does not name the time", "\"until then\", \"while X waits\""),
    entry(r"\A\s*(?:Gives|Has|Lets)\b", "the verb says too little",
          "\"Returns\", \"Contains\", \"Allows\"", 0),
)

CODE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`|\"[^\"]{0,400}\"|“[^”]*”", re.DOTALL)


def blank(text, pattern=CODE):
    """Replaces each character that matches the pattern by a space. Newlines are kept."""
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def joined(lines):
    """Joins comments on adjacent lines into blocks. `lines` contains the texts by line number; a
    block is (first line, text)."""
    blocks, last = [], 0
    for number, text in sorted(lines.items()):
        if blocks and number == last + 1:
            blocks[-1][1].append(text)
        else:
            blocks.append((number, [text]))
        last = number
    return [(number, "\n".join(texts)) for number, texts in blocks]


# Pattern of comments, strings and character literals. Strings and characters are included because
# they may contain the characters that begin a comment.
C_TOKEN = re.compile(
    r'(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)|b?r(?P<mark>#*)".*?"(?P=mark)'
    r"""|[bc]?"(?:\\.|[^"\\])*"|b?'(?:\\[^\n]{1,8}?|[^'\\\n])'""", re.DOTALL)


def of_c(text):
    """Returns the comments of a Rust or C source."""
    lines, blocks = {}, []
    for found in C_TOKEN.finditer(text):
        number = text.count("\n", 0, found.start()) + 1
        if found["line"]:
            lines[number] = re.sub(r"^//[/!]?", "", found["line"])
        elif found["block"]:
            inner = re.sub(r"(?m)^[ \t]*\*(?!/)", "", found["block"][2:-2])
            blocks.append((number, inner.removeprefix("*")))
    return joined(lines) + blocks


def of_python(text):
    """Returns the comments and docstrings of a Python source."""
    lines = {token.start[0]: token.string.lstrip("#")
             for token in tokenize.generate_tokens(io.StringIO(text).readline)
             if token.type == tokenize.COMMENT}
    strings = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            head = node.body[0] if node.body else None
            if (isinstance(head, ast.Expr) and isinstance(head.value, ast.Constant)
                    and isinstance(head.value.value, str)):
                strings.append((head.lineno, head.value.value))
    return joined(lines) + strings


def of_shell(text):
    """Returns the comments of a shell script. Only comments that begin a line are included."""
    return joined({number: line.lstrip().lstrip("#")
                   for number, line in enumerate(text.splitlines(), 1)
                   if re.match(r"\s*#(?!!)", line)})


def of_page(text):
    """Returns the paragraphs of a page. Leaves out literal blocks, tables and code blocks.
    """
    lines, literal = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if literal is None and line.strip():
            lines[number] = line
            if re.search(r"::\s*$|^\s*\.\. (?:code|csv-table|list-table|parsed-literal)", line):
                literal = indent
    return joined(lines)


def reader(path, text):
    """Returns the function that finds the prose of a file, or None."""
    name = str(path)
    if PAGES.fullmatch(name):
        return None if name in NOT_PAGES else of_page
    if not name.startswith(SOURCES):
        return None
    first = text.partition("\n")[0]
    if path.suffix in RUST + C:
        return of_c if name.startswith("rust/") or path.suffix in C else None
    if path.suffix == ".py" or (not path.suffix and PYTHON.match(first)):
        return of_python
    if path.suffix == ".sh" or (not path.suffix and SHELL.match(first)):
        return of_shell
    return None


def hits(blocks):
    """Returns (line, words, entry) for each bad word that was found, in the order of the lines."""
    found = []
    for number, raw in blocks:
        text = blank(raw)
        for rule in ENTRIES:
            for match in rule.pattern.finditer(text):
                begin = match.start() + len(match[0]) - len(match[0].lstrip())
                found.append((number + text.count("\n", 0, begin),
                              " ".join(match[0].split()), rule))
    return sorted(found, key=lambda hit: hit[0])


def check(root, files, left_out=OPEN):
    """Yields a line for each bad word that is found in files below the directory `root`."""
    for path in files:
        name = path.relative_to(root)
        if str(name).startswith(tuple(left_out)):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        read = reader(pathlib.PurePath(name), text)
        for line, words, rule in hits(read(text)) if read else ():
            yield f"{name}:{line}: \"{words}\": {rule.why}; write {rule.instead}"
