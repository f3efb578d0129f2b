"""What every page is made of: the HTML around it, its policy, its one script and its style sheet."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from attncli.draw.encoding import SURROGATE
from attncli.draw.safe import safe_html
from attncli.inputs.files import read_regular
from attncli.language import message


@cache
def page_script(*modules: str) -> str:
    """The script of a page: the named JavaScript files of this folder joined into one, in the order
    in which they run."""
    return join_modules({name: read_asset(f"{name}.js") for name in modules})


@cache
def page_style(*sheets: str) -> str:
    """The style sheet of a page: `style.css`, which every page has, and the named sheets after it."""
    return "".join(read_asset(f"{name}.css") for name in ("style", *sheets))


BORDER = re.compile(
    r'^import \{ [^}]+ \} from "\./\w+\.js";\n|^export (?=(?:async )?(?:function|const) )',
    re.MULTILINE,
)
"""What leads from one module to another."""
REMARK = re.compile(
    r"^ *(?:/\*\*(?:(?!\*/).)*\*/|//[^\n]*)\n|/\*\* @type (?:(?!\*/).)*\*/ ?",
    re.MULTILINE | re.DOTALL,
)


def join_modules(modules: Mapping[str, str]) -> str:
    """The modules as one script without exports: one below the other, in one scope.

    Only remarks that are lines or types are left out, and what leads from one module to another: a
    quarter of the bytes. Short names and no spaces would make it half as long, beside data of up to
    15 MB, and took a minifier of 240 lines.

    Args:
        modules: The source of each module by its name, in the order in which they run; a module
            imports only from those before it, and declares what it exports with `const` or
            `function`. No two declare one name. What is imported from a module that is not there
            may stand where it is never reached.
    Returns:
        The script, strict, which leaves no name behind.
    """
    sources = (BORDER.sub("", REMARK.sub("", source)) for source in modules.values())
    return f'(() => {{\n"use strict";\n{"".join(sources)}}})();'


def read_asset(name: str) -> str:
    """The text of a script or a style in this folder."""
    path = Path(__file__).parent / name
    return read_regular(path, what=message("a file")).decode()


def as_json(meta: Mapping[str, Any]) -> str:
    """A value for a page's script as JSON, with "<" escaped so that no text in it can end the HTML
    element around it."""
    text = json.dumps(meta, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return SURROGATE.sub("\ufffd", text.replace("<", "\\u003c"))


def csp_hash(text: str) -> str:
    """The hash of a script or a style as a content security policy names it."""
    return "'sha256-" + b64encode(sha256(text.encode()).digest()).decode() + "'"


HEAD = """<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {script_hash}; \
style-src {style_hash}; {policy}base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="attn {version}">
<title>{title}</title>
<style>{style}</style>
</head>
"""


def page_head(lang: str, title: str, script: str, style: str, *, policy: str = "") -> str:
    """The HTML before the body of a page, with a policy that lets it run this script and use this
    style, and load nothing.

    Args:
        lang: The language of the page.
        title: As it is: made safe here, cut after 120 characters.
        script: The one script that may run; its hash is named, the script itself stands in the
            body.
        style: The style sheet.
        policy: What the page may do besides, such as "worker-src blob:; ".
    """
    from attncli.version import __version__

    return HEAD.format(
        lang=lang,
        script_hash=csp_hash(script),
        style_hash=csp_hash(style),
        policy=policy,
        version=__version__,
        title=safe_html(title[:120]),
        style=style,
    )


FIRST_STRONG_ISOLATE = "\u2068"
"""The character after which a text has the direction of its own first letter, whatever is around."""
POP_ISOLATE = "\u2069"
"""The character that ends what `FIRST_STRONG_ISOLATE` began."""
LETTERS = r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]"
"""Letters of scripts that are written from right to left."""
