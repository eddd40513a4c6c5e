"""The HTML twin: accessible, one file, no script, no outside reference; octets depend on figures alone."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from evidence.package.layout import Block, Grid, Heading, Text, blocks, title

_STYLE = """
:root{color-scheme:light dark;--ink:#17202a;--soft:#566573;--line:#d5dbe1;--bg:#fff}
:root{--warn:#9a3412;--warnbg:#fff4ed}
@media(prefers-color-scheme:dark){
:root{--ink:#e8ecf0;--soft:#a9b4bf;--line:#3a444e;--bg:#14191e;--warn:#ffb38a;--warnbg:#2b1d14}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--bg)}
body{max-width:66rem;margin:0 auto;padding:2rem 1rem;overflow-wrap:break-word}
h1{font-size:1.7rem;margin:0 0 .2rem}
h2{font-size:1.2rem;margin:2.2rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
.standing{color:var(--soft);margin:0 0 1.2rem}.note{color:var(--soft)}
.finding{color:var(--warn);background:var(--warnbg);border-left:4px solid var(--warn)}
.finding{padding:.35rem .7rem;margin:.35rem 0}
.scroll{overflow-x:auto;margin:.8rem 0}table{border-collapse:collapse;width:100%;font-size:.88rem}
caption{text-align:left;color:var(--soft);padding:.2rem 0}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid var(--line)}
td{min-width:4.2rem}
th.n,td.n{text-align:right;font-variant-numeric:tabular-nums;overflow-wrap:normal;white-space:nowrap;min-width:0}
""".strip()

#: Where a name may be wrapped: after `/`, `,`, `@`, `=`, `_`, and after `.` or `:` before a letter.
_WRAP = re.compile(r"(?<=[/,@=_])(?=\w)|(?<=[.:])(?=[^\W\d])")
#: Digests and what else is far too long for a column: each 16 of it.
_LONG = re.compile(r"[^\W_]{16}(?=[^\W_]{8})")


def escape(text: str) -> str:
    """Text as HTML; characters that can't be seen, or that turn text around, are shown as `?`."""
    return html.escape("".join(ch if ch.isprintable() else "?" for ch in text))


def wrappable(text: str) -> str:
    """Text as HTML that a narrow column wraps where a reader would, not within a word."""
    return _WRAP.sub("<wbr>", _LONG.sub(r"\g<0><wbr>", escape(text)))  # neither matches inside an entity


def render(f: dict[str, Any]) -> bytes:
    """Octets of report.html."""
    name = escape(title(f))
    head = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy"',
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{name}</title><style>{_STYLE}</style></head>",
        f"<body><main><h1>{wrappable(title(f))}</h1>",
        f'<p class="standing">{wrappable("; ".join(f["labels"]))}</p>',
    ]
    return ("\n".join([*head, *map(_block, blocks(f)), "</main></body></html>"]) + "\n").encode()


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h2>{wrappable(block.text)}</h2>"
    if isinstance(block, Text):
        kind = "" if block.tone == "plain" else f' class="{block.tone}"'
        return f"<p{kind}>{wrappable(block.text)}</p>"
    return _grid(block)


def _grid(grid: Grid) -> str:
    def cells(values: Sequence[str], tag: str) -> str:
        scope = " scope=col" if tag == "th" else ""
        return "".join(
            f"<{tag}{scope}{' class=n' if i in grid.numbers else ''}>{wrappable(v)}</{tag}>"
            for i, v in enumerate(values)
        )

    rows = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in grid.rows)
    label = escape(grid.caption)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">'
        f"<table><caption>{label}</caption>"
        f"<thead><tr>{cells(grid.head, 'th')}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )
