"""Which beginnings of prompts are kept, in integers only: a tree over whole pages of tokens.

A kept beginning is the pages of its keys and values and a snapshot of the recurrent state after exactly its
tokens. Without the snapshot the pages are of no use, so every leaf of the tree has one; pages on the way to
it are shared by all that begin alike.

A node is found by the tokens of its page *and the token after them*: the MTP head's row of a position is
computed with the token that follows it, so only then are the head's keys and values right too.

The last page of a beginning may be filled in part (a tail). It is never shared: whoever goes on from it gets
a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from draftproof.runtime.pages import SCRAP_PAGE, PageAllocator
from draftproof.runtime.slots import SlotAllocator


@dataclass(eq=False)
class _Node:
    """One page of tokens, after those of its parents.

    Attributes:
        key: tokens of the page and the one after them.
        parent: None for the root, and for a node that was taken out.
        page: of keys and values.
        snapshot: number of the recurrent state after this page's last token.
        last_used: when it was published or matched.
        children: by key; tails have fewer tokens than a page and no children.
    """

    key: tuple[int, ...]
    parent: _Node | None
    page: int
    snapshot: int | None = None
    last_used: int = 0
    children: dict[tuple[int, ...], _Node] = field(default_factory=dict)


@dataclass(frozen=True)
class PrefixMatch:
    """What is kept of a prompt's beginning.

    Attributes:
        position: leading tokens whose state can be used; 0 for none.
        snapshot: the recurrent state after them.
        pages: whole pages of their keys and values.
        tail: page of the tokens after those, to be copied.
        branch: leading tokens, in whole pages, that another prompt shares; `position` is less when the state
            there is not kept.
    """

    position: int = 0
    snapshot: int | None = None
    pages: tuple[int, ...] = ()
    tail: int | None = None
    branch: int = 0


class PrefixCache:
    """Keeps beginnings, and forgets the least recently used ones.

    Args:
        pages: shared with running sequences.
        snapshots: places for recurrent states.
    """

    def __init__(self, pages: PageAllocator, snapshots: SlotAllocator) -> None:
        self._pages = pages
        self._snapshots = snapshots
        self._root = _Node((), None, SCRAP_PAGE)
        self._kept: dict[int, _Node] = {}
        self._clock = 0

    @property
    def snapshots_used(self) -> int:
        """Snapshots that are kept, or taken by running sequences."""
        return self._snapshots.num_slots - self._snapshots.free

    @property
    def snapshots_total(self) -> int:
        """Snapshots that there is room for."""
        return self._snapshots.num_slots

    @property
    def snapshots_kept(self) -> int:
        """Snapshots that prompts can find."""
        return len(self._kept)

    def match(self, tokens: Sequence[int], limit: int) -> PrefixMatch:
        """The longest kept beginning of `tokens` that is no longer than `limit` (less than all of them)."""
        size = self._pages.page_size
        node, depth, best, best_depth = self._root, 0, self._root, 0
        while True:
            rest = tuple(tokens[depth : depth + size + 1])
            for key, child in node.children.items():
                if len(key) <= size and rest[: len(key)] == key and depth + len(key) - 1 <= limit:
                    position = depth + len(key) - 1
                    if position > best_depth:
                        best, best_depth = child, position
            following = node.children.get(rest) if len(rest) > size else None
            if following is None or depth + size > limit:
                break
            node, depth = following, depth + size
            if node.snapshot is not None:
                best, best_depth = node, depth
        if best is self._root:
            return PrefixMatch(branch=depth)
        self._touch(best)
        return self._match_of(best, best_depth, depth)

    def take_snapshot(self) -> int | None:
        """A free place for a recurrent state, made by forgetting one if need be; None when all are taken by
        running sequences."""
        if not self._snapshots.free:
            if not self._kept:
                return None
            self._forget(min(self._kept.values(), key=_last_used))
        return self._snapshots.allocate()

    def give_back(self, snapshot: int) -> None:
        """A place that was taken and will not be published."""
        self._snapshots.release(snapshot)

    def publish(self, tokens: Sequence[int], pages: Sequence[int], snapshot: int) -> None:
        """Keep a beginning.

        Args:
            tokens: its tokens and the one after them.
            pages: of its keys and values, the last one possibly filled in part; they get one holder more.
            snapshot: from `take_snapshot`, holding the recurrent state after the beginning.
        """
        size, position = self._pages.page_size, len(tokens) - 1
        node = self._root
        for index, begin in enumerate(range(0, position, size)):
            key = tuple(tokens[begin : min(begin + size, position) + 1])
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = _Node(key, node, pages[index])
                self._pages.share((pages[index],))
            node = child
        if node.snapshot is None:
            node.snapshot = snapshot
            self._kept[snapshot] = node
        else:
            self._snapshots.release(snapshot)
        self._touch(node)

    def free_pages(self, wanted: int, spared: int | None = None) -> bool:
        """Forget beginnings, the least recently used first, until `wanted` pages are free.

        Args:
            wanted: free pages.
            spared: a snapshot that stays.

        Returns:
            Whether they are; if not, what is left is in use by running sequences.
        """
        while self._pages.free < wanted:
            candidates = [
                node
                for number, node in self._kept.items()
                if number != spared and not node.children and self._pages.holders(node.page) == 1
            ]
            if not candidates:
                return False
            self._forget(min(candidates, key=_last_used))
        return True

    def clear(self) -> None:
        """Forget everything; pages that running sequences use stay theirs."""
        for node in list(self._kept.values()):
            self._forget(node)

    def held_pages(self) -> Iterator[int]:
        """The page of every node."""
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            yield node.page
            stack.extend(node.children.values())

    def check_integrity(self) -> None:
        """Every leaf has a snapshot, and every snapshot that is kept belongs to the node that names it."""
        self._snapshots.check_integrity()
        reached = set()
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if node.snapshot is None and not node.children:
                raise ValueError("the prefix cache holds a page that leads to no snapshot")
            if node.snapshot is not None:
                reached.add(node.snapshot)
                if self._kept.get(node.snapshot) is not node:
                    raise ValueError(f"snapshot {node.snapshot} is held twice")
        if reached != set(self._kept):
            raise ValueError("a snapshot is kept that no prompt can reach")

    def _match_of(self, node: _Node, position: int, branch: int) -> PrefixMatch:
        path: list[int] = []
        tail = node.page if position % self._pages.page_size else None
        walk = node.parent if tail is not None else node
        while walk is not None and walk is not self._root:
            path.append(walk.page)
            walk = walk.parent
        return PrefixMatch(position, node.snapshot, tuple(reversed(path)), tail, branch)

    def _touch(self, node: _Node) -> None:
        self._clock += 1
        node.last_used = self._clock

    def _forget(self, node: _Node) -> None:
        """Give up a node's snapshot, and the pages that lead to no other."""
        assert node.snapshot is not None
        self._snapshots.release(node.snapshot)
        del self._kept[node.snapshot]
        node.snapshot = None
        while node.parent is not None and node.snapshot is None and not node.children:
            parent, node.parent = node.parent, None
            del parent.children[node.key]
            self._pages.release((node.page,))
            node = parent


def _last_used(node: _Node) -> int:
    return node.last_used
