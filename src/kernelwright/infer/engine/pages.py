"""The pages of a cache: which are free, how many sequences use each, and which contents can be used
again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

NO_PARENT = -1  # of a sequence's first page


class Content(NamedTuple):
    """What a full page holds: keys and values of these tokens, after those of the parent page and
    its parents."""

    parent: int
    tokens: tuple[int, ...]


class Pages:
    """Numbers of pages, counted by the sequences that use them.

    A full page whose content was published can be used by every sequence that begins with the same
    tokens. Contents are looked up by parent and tokens in a dict, which compares both, so equal
    hashes do no harm. A page without users keeps its content until it is needed for another one;
    the page that was used least recently is taken first.

    A sequence that uses a page uses its parent too, and `release` gives back children before their
    parents. So a page is taken only after its children, and the number of a parent never stands for
    an earlier content of that page.

    Args:
        count: the number of pages.
        size: tokens in a page.
    """

    def __init__(self, count: int, size: int):
        self.count, self.size = count, size
        self.users = [0] * count
        self._blank = list(range(count - 1, -1, -1))  # neither users nor content
        self._unused: OrderedDict[int, None] = OrderedDict()  # content but no users; oldest first
        self._pages: dict[Content, int] = {}
        self._contents: list[Content | None] = [None] * count

    @property
    def available(self) -> int:
        """The number of pages that `take` can return."""
        return len(self._blank) + len(self._unused)

    @property
    def cached(self) -> int:
        """The number of pages without users that have a content."""
        return len(self._unused)

    def take(self, count: int) -> list[int] | None:
        """Pages for new contents, each with one user; None if fewer are available."""
        if count > self.available:
            return None
        return [self._taken() for _ in range(count)]

    def _taken(self) -> int:
        if self._blank:
            page = self._blank.pop()
        else:
            page, _ = self._unused.popitem(last=False)
            content = self._contents[page]
            assert content is not None
            del self._pages[content]
            self._contents[page] = None
        self.users[page] = 1
        return page

    def share(self, pages: Iterable[int]) -> None:
        """Add a user to each page."""
        for page in pages:
            self.users[page] += 1
            self._unused.pop(page, None)

    def release(self, pages: Sequence[int]) -> None:
        """Remove a user from each of a sequence's pages, given in the sequence's order."""
        for page in reversed(pages):
            self.users[page] -= 1
            if self.users[page] == 0 and self._contents[page] is None:
                self._blank.append(page)
            elif self.users[page] == 0:
                self._unused[page] = None

    def prefix(self, tokens: Sequence[int], limit: int) -> list[int]:
        """The pages that hold the first tokens of a sequence, at most `limit` tokens of it, each
        with a further user."""
        pages: list[int] = []
        parent = NO_PARENT
        for end in range(self.size, limit + 1, self.size):
            page = self._pages.get(Content(parent, tuple(tokens[end - self.size : end])))
            if page is None:
                break
            pages.append(page)
            parent = page
        self.share(pages)
        return pages

    def publish(self, page: int, content: Content) -> int:
        """Make a full page available to other sequences.

        Returns:
            The page that its user has to use from now on: another one if that has the same content
            already.
        """
        known = self._pages.setdefault(content, page)
        if known == page:
            self._contents[page] = content
        else:
            self.share((known,))
            self.release((page,))
        return known
