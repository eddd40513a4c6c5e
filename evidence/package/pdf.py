"""The PDF: a rendering of the same blocks by reportlab, deterministic (invariant), everything escaped.

A log value is data: it can hold `<img src="file:///...">`, which reportlab's paragraph markup would open.
So every text is escaped, long tables are drawn in chunks (one LongTable of 40,000 rows takes a minute;
time grows with the square), and characters outside the built-in fonts are shown as `?`.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from evidence.package.layout import Block, Grid, Heading, Text, blocks, cut, title

_CHUNK = 200  # rows drawn as one table
_CELL_LINES = 20  # lines of a cell of the widest letters; the tables have all of it
_INK, _SOFT, _LINE, _HEAD, _WARN, _WARN_BG = "#17202a", "#566573", "#d5dbe1", "#eef2f6", "#9a3412", "#fff4ed"
_MARGIN = 48
_PAD = 6  # of a reportlab frame


def render(f: dict[str, Any]) -> bytes:
    """Octets of report.pdf for the installed reportlab."""
    from reportlab.lib.pagesizes import A4
    from reportlab.platypus import SimpleDocTemplate

    out = io.BytesIO()
    doc = SimpleDocTemplate(
        out, pagesize=A4, leftMargin=_MARGIN - _PAD, rightMargin=_MARGIN - _PAD, topMargin=58,
        bottomMargin=52, invariant=1, pageCompression=0,  # another zlib would give other octets
        title=_plain(title(f)), author="Sluicegate", subject="Evidence package report", lang="en",
    )  # fmt: skip
    draw = _Draw(A4[0] - 2 * _MARGIN)
    story = [*draw.opening(f), *(part for block in blocks(f) for part in draw.block(block))]

    def page(canvas: Any, document: Any) -> None:
        _furniture(canvas, document, f)

    doc.build(story, onFirstPage=page, onLaterPages=page)
    return out.getvalue()


def _furniture(canvas: Any, document: Any, f: dict[str, Any]) -> None:
    """Header line and foot of each page: whose, which window, standing, page number."""
    width, height = document.pagesize
    canvas.saveState()
    canvas.setFont("Helvetica", 8)
    canvas.setFillColor(_SOFT)
    canvas.drawString(_MARGIN, height - 36, _plain(cut(f"Sluicegate evidence package  |  {f['scope']}", 60)))
    canvas.drawRightString(width - _MARGIN, height - 36, _plain(f"{f['window'][0]} to {f['window'][1]}"))
    canvas.setStrokeColor(_LINE)
    canvas.line(_MARGIN, height - 42, width - _MARGIN, height - 42)
    canvas.line(_MARGIN, 40, width - _MARGIN, 40)
    canvas.drawString(
        _MARGIN, 28, _plain("Rendering of figures.json. Standing: " + "; ".join(f["labels"]))[:110]
    )
    canvas.drawRightString(width - _MARGIN, 28, f"Page {document.page}")
    canvas.restoreState()


class _Draw:
    """Blocks to flowables."""

    def __init__(self, width: float) -> None:
        from reportlab.lib.styles import ParagraphStyle

        self.width = width
        base = {"fontName": "Helvetica", "fontSize": 9, "leading": 12.5, "textColor": _INK}
        bold = {**base, "fontName": "Helvetica-Bold"}
        soft = {**base, "textColor": _SOFT}
        cell = {**base, "fontSize": 7.6, "leading": 9.6, "splitLongWords": 1}
        self.style = {
            "title": ParagraphStyle("title", **{**bold, "fontSize": 20, "leading": 25}),
            "sub": ParagraphStyle("sub", **soft, spaceAfter=8),
            "heading": ParagraphStyle(
                "heading", **{**bold, "fontSize": 12.5, "leading": 16},
                spaceBefore=13, spaceAfter=4, keepWithNext=1,
            ),
            "plain": ParagraphStyle("plain", **base, spaceAfter=4),
            "note": ParagraphStyle("note", **{**soft, "fontSize": 8.4, "leading": 11.2}, spaceAfter=4),
            "finding": ParagraphStyle(
                "finding", **{**base, "textColor": _WARN}, backColor=_WARN_BG, borderPadding=(3, 5, 3, 5),
                leftIndent=6, rightIndent=6, spaceBefore=4, spaceAfter=5,
            ),
            "caption": ParagraphStyle(
                "caption", **{**soft, "fontSize": 8}, spaceBefore=6, spaceAfter=2, keepWithNext=1,
            ),
            "cell": ParagraphStyle("cell", **cell),
            "number": ParagraphStyle("number", **cell, alignment=2),
            "th": ParagraphStyle("th", **{**cell, "fontName": "Helvetica-Bold"}),
            "thn": ParagraphStyle("thn", **{**cell, "fontName": "Helvetica-Bold"}, alignment=2),
        }  # fmt: skip

    def opening(self, f: dict[str, Any]) -> list[Any]:
        """Title and the line under it."""
        return [self._p(title(f), "title"), self._p("; ".join(f["labels"]), "sub")]

    def block(self, block: Block) -> list[Any]:
        """Flowables of one block."""
        if isinstance(block, Heading):
            return [self._p(block.text, "heading")]
        if isinstance(block, Text):
            return [self._p(block.text, block.tone)]
        return self._grid(block)

    def _p(self, text: str, style: str) -> Any:
        from reportlab.platypus import Paragraph

        return Paragraph(escape(_plain(text)), self.style[style])

    def _grid(self, grid: Grid) -> list[Any]:
        from reportlab.platypus import Spacer

        total = sum(grid.widths)
        widths = [self.width * w / total for w in grid.widths]
        head = [self._p(h, "thn" if i in grid.numbers else "th") for i, h in enumerate(grid.head)]
        chunks = [grid.rows[at : at + _CHUNK] for at in range(0, max(len(grid.rows), 1), _CHUNK)]
        tables = [self._table(head, rows, widths, grid.numbers) for rows in chunks]
        return [self._p(grid.caption, "caption"), *tables, Spacer(1, 4)]

    def _table(
        self, head: list[Any], rows: Sequence[Sequence[str]], widths: list[float], numbers: frozenset[int]
    ) -> Any:
        from reportlab.platypus import Table, TableStyle

        body = [
            [self._p(_cut(v, widths[i]), "number" if i in numbers else "cell") for i, v in enumerate(row)]
            for row in rows
        ]
        texts = set(range(len(widths))) - numbers
        table = Table([head, *body], colWidths=widths, repeatRows=1, hAlign="LEFT")
        table.setStyle(
            TableStyle(
                [
                    ("BACKGROUND", (0, 0), (-1, 0), _HEAD),
                    ("LINEBELOW", (0, 0), (-1, -1), 0.4, _LINE),
                    ("VALIGN", (0, 0), (-1, -1), "TOP"),
                    ("LEFTPADDING", (0, 0), (-1, -1), 4),
                    ("RIGHTPADDING", (0, 0), (-1, -1), 4),
                    *(("RIGHTPADDING", (i, 0), (i, -1), 10) for i in sorted(numbers)[:-1]),
                    *(("RIGHTPADDING", (i, 0), (i, -1), 14) for i in numbers if i + 1 in texts),
                    ("TOPPADDING", (0, 0), (-1, -1), 2.4),
                    ("BOTTOMPADDING", (0, 0), (-1, -1), 2.6),
                ]
            )
        )
        return table


def _cut(text: str, width: float) -> str:
    """Cut a text visibly before its cell could grow taller than a page."""
    room = _CELL_LINES * max(int((width - 8) / 7.2), 2)  # 7.2 points: a W of the cell's font
    return cut(text, room)


def _plain(text: str) -> str:
    """Text in the built-in fonts' repertoire (cp1252), control characters shown as `?`."""
    shown = text.encode("cp1252", "replace").decode("cp1252")
    return "".join(ch if ch.isprintable() else "?" for ch in shown)
