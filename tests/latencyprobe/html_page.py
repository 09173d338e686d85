"""An HTML page that is read as a browser reads it, for the tests of pages."""

import re
from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "br", "wbr"}
Attributes = dict[str, str | None]


class Parsed(HTMLParser):
    """A page that is read; what is not well-formed fails."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.open: list[str] = []
        self.tags: list[tuple[str, Attributes]] = []
        self.pieces: list[str] = []
        self.feed(self.source)
        self.close()
        assert [] == self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"an attribute of {tag} twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"<{tag}/> is for SVG"
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return "".join(self.pieces).replace("\u00a0", " ")  # it looks the same

    def all(self, *tags: str) -> list[Attributes]:
        return [attributes for tag, attributes in self.tags if tag in tags]


def assert_links_lead_somewhere(page: Parsed) -> None:
    ids = Counter(attributes["id"] for _, attributes in page.tags if "id" in attributes)
    assert [] == [one for one, times in ids.items() if times > 1]
    inside = {str(one["href"]) for one in page.all("a") if str(one["href"]).startswith("#")}
    named = {str(name) for _, one in page.tags for name in str(one.get("aria-labelledby") or "").split()}
    assert {one[1:] for one in inside} | named <= set(ids)


def assert_alone(page: Parsed, outside: str) -> None:
    """It needs nothing else, runs nothing and leads to nothing but its own places and what begins with `outside`."""
    assert [] == page.all("script", "link", "img", "iframe", "object", "embed", "form", "base", "foreignobject", "use")
    assert "url(" not in page.source
    assert "@import" not in page.source
    names = {name for _, attributes in page.tags for name in attributes}
    assert [] == [name for name in names if name.startswith("on") or name in ("src", "style", "srcset", "xlink:href")]
    assert all(str(one["href"]).startswith(("#", outside)) for one in page.all("a"))
    assert any(str(one.get("content")).startswith("default-src 'none'") for one in page.all("meta"))


def assert_readable_without_seeing(page: Parsed) -> None:
    assert [1, 1] == [len(page.all(tag)) for tag in ("h1", "main")]
    assert all(one.get("scope") in ("col", "row", "rowgroup") for one in page.all("th"))
    assert all(one.get("aria-hidden") == "true" or {"role", "aria-label"} <= set(one) for one in page.all("svg"))
    tables = [part.partition("</table>")[0] for part in page.source.split("<table")[1:]]
    assert all('scope="col"' in one for one in tables)


def assert_only_text(page: Parsed, hostile: str) -> None:
    """`hostile` is shown as it is, and no attribute that a browser follows or draws by has any of it."""
    assert hostile in page.text
    assert "alert(1)" not in {str(value) for _, one in page.tags for name, value in one.items() if name != "aria-label"}
    assert "\u202e" not in page.source
    classes = {word for _, one in page.tags for word in str(one.get("class") or "").split()}
    assert all(re.fullmatch(r"[a-z_-]+", one) for one in classes)
