"""The page around the drawings: one file, one style sheet, light and dark."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files


def page(title: str, lead: str, sections: Iterable[str], footer: str = "") -> str:
    """A whole HTML document.

    Arguments:
        title: The headline.
        lead: The paragraph under it, as HTML.
        sections: The rest, as HTML.
        footer: The small print, as HTML.

    Returns:
        The document; it fetches nothing and runs the few lines of `switch.js` alone.

    Example:
        >>> page("Title", "Lead.", ["<p>Body.</p>"]).count("<h1>Title</h1>")
        1
    """
    style = files("amsip.report").joinpath("style.css").read_text(encoding="utf-8")
    script = files("amsip.report").joinpath("switch.js").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<header>\n<h1>{escape(title)}</h1>\n<p class="lead">{lead}</p>\n</header>\n'
        + "\n".join(sections)
        + f"\n<footer>{footer}</footer>\n</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A titled section."""
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def paragraph(html: str) -> str:
    """A paragraph of HTML."""
    return f"<p>{html}</p>"


def figure(svg: str, caption: str) -> str:
    """A drawing with its caption, both as HTML."""
    return f"<figure>\n{svg}\n<figcaption>{caption}</figcaption>\n</figure>"


def data_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], style: str = "scroll", attributes: str = ""
) -> str:
    """A table; the first column names the row, the others are numbers."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>\n"
        for row in rows
    )
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"
    return f'<div class="{style}" {attributes}>{table}</div>'


def switch(name: str, labels: Sequence[str], chosen: int) -> str:
    """Buttons, of which one is pressed: elements with `data-NAME` show when their number is."""
    buttons = "".join(
        f'<button type="button" data-for="{name}" value="{i}" aria-pressed="{str(i == chosen).lower()}">'
        f"{escape(label)}</button>"
        for i, label in enumerate(labels)
    )
    return f'<div class="switch" role="group">{buttons}</div>'


def code(source: str) -> str:
    """A block of code."""
    return f"<pre><code>{escape(source)}</code></pre>"
