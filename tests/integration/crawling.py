"""Walking through the console as a visitor without scripts does: from link to link, each kind of page a few times."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

from starlette.routing import Match, Route

from lamina.server.http.console.page import Page
from lamina.server.http.console.pages import all_pages

_NO_END = frozenset({"meta", "link", "img", "input", "br", "hr", "col", "source", "wbr", "area", "base", "embed"})


class Element(NamedTuple):
    """One tag, and what is in it where that matters."""

    tag: str
    attributes: dict[str, str]


class Reader(HTMLParser):
    """All elements of a page, the text of scripts and styles, and whether the tags fit together."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.inline: list[str] = []
        self.wrong: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self._is_svg = 0
        self.feed(html)
        self.close()
        if self._open:
            self.wrong.append(f"never closed: {self._open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag == "svg":
            self._is_svg += 1
        if tag not in _NO_END:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if not self._is_svg and tag not in _NO_END:
            self.wrong.append(f"<{tag}/> is not closed by its slash")

    def handle_endtag(self, tag: str) -> None:
        if tag == "svg":
            self._is_svg -= 1
        if self._open and self._open[-1] == tag:
            self._open.pop()
        elif tag in ("li", "p", "td", "tr", "th") or (self._open and tag in self._open):
            self.wrong.append(f"</{tag}> inside {self._open[-3:]}")
            while tag in self._open and self._open.pop() != tag:
                pass
        else:
            self.wrong.append(f"</{tag}> without a start, inside {self._open[-3:]}")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("script", "style") and data.strip():
            self.inline.append(data.strip()[:80])
        self.text += data

    def links(self) -> Iterator[str]:
        """Where it leads, within the server; forms that only look are sent as they are."""
        sent: dict[str, str] | None = None
        for tag, attributes in self.elements:
            target = attributes.get("href")
            if tag == "a" and target and not target.startswith("#"):
                yield target
            elif tag == "form":
                sent = None
                if attributes.get("method", "get").lower() == "get":
                    sent, action = {}, attributes.get("action", "")
            elif sent is not None and tag == "input" and "name" in attributes:
                sent[attributes["name"]] = attributes.get("value") or ("a" if "required" in attributes else "")
            elif sent is not None and tag == "button":
                yield f"{action}?{urlencode(sent)}"
                sent = None

    def forms(self) -> list[Element]:
        return [each for each in self.elements if each.tag == "form"]

    def problems(self) -> list[str]:
        """What a strict content security policy forbids, and what reaches for another host."""
        found = [f"inline: {text}" for text in self.inline]
        for tag, attributes in self.elements:
            if tag == "style" or (tag == "script" and not attributes.get("src", "").startswith("/")):
                found.append(f"<{tag}> {attributes}")
            for name, value in attributes.items():
                if name == "style" or name.startswith("on"):
                    found.append(f"<{tag} {name}={value[:60]!r}>")
                if name in ("src", "href", "action", "formaction", "srcset", "poster", "data", "xlink:href"):
                    where = urlsplit(value)
                    if where.scheme or where.netloc:
                        found.append(f"<{tag} {name}={value[:80]!r}> leads elsewhere")
        return found


@dataclass
class Walk:
    """What was found on the way."""

    pages: dict[str, Reader] = field(default_factory=dict)
    """By address."""
    kinds: Counter[str] = field(default_factory=Counter)
    """How often each page was seen, by the path it is made for."""
    broken: list[str] = field(default_factory=list)
    actions: dict[str, str] = field(default_factory=dict)
    """Which operation can be done from which address."""


def walk(
    look: Callable[[str], tuple[int, str, str]], starts: Iterable[str] = ("/",), most: int = 150, of_a_kind: int = 4
) -> Walk:
    """``look`` gives status, content type and text of an address. ``of_a_kind``: so many of the same page."""
    pages = all_pages()
    found, waiting = Walk(), deque(starts)
    seen = set(waiting)
    while waiting and len(found.pages) < most:
        at = waiting.popleft()
        status, kind, html = look(at)
        if status != 200:
            found.broken.append(f"{at}: {status}")
        if not kind.startswith("text/html"):
            continue
        page = page_of(at, pages)
        found.kinds[page.path if page else "?"] += 1
        reader = found.pages[at] = Reader(html)
        for form in reader.forms():
            if form.attributes.get("action", "").startswith("/act/"):
                found.actions.setdefault(form.attributes["action"].removeprefix("/act/").partition("?")[0], at)
        for target in reader.links():
            target = urljoin(at, target).partition("#")[0]
            kind_of = page_of(target, pages)
            if target in seen or urlsplit(target).netloc:
                continue
            if kind_of is not None and sum(page_of(one, pages) is kind_of for one in seen) >= of_a_kind:
                continue
            seen.add(target)
            waiting.append(target)
    return found


def page_of(address: str, pages: list[Page]) -> Page | None:
    """Which page answers there."""
    scope = {"type": "http", "method": "GET", "path": urlsplit(address).path, "root_path": ""}
    for page in pages:
        if Route(page.path, _nothing).matches(scope)[0] is Match.FULL:
            return page
    return None


def _nothing(request: object) -> None:
    """Never called."""
