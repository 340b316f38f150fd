"""`RadixIndex`: a tree whose edges are runs of tokens, shared by prompts with one beginning (SGLang's RadixAttention).

    root ── 你好小明 ┬─ 把苹果给 [2 4]      b = 2: labels are whole blocks, siblings differ in their first block,
           [0 1]   └─ 吃了苹果也给 [5 3 7]   and a child is found by the first block of its label

A run splits where two prompts part, always between blocks. Whoever works below a node locks it and everything above;
`evict` takes unlocked leaves only, the least recently used first and each from its tail. Inside an engine the free
queue of the pool decides instead (`drop`): it holds only what no table holds, tails before beginnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from engine.prefix import Match, longest


class Node:
    """A run of blocks.

    Attributes:
        parent: the node above; the root is its own parent.
        start: blocks between the root and this run.
        pages: the tokens of each block of the run.
        blocks: the block that holds each of them.
        children: what goes on after the run, by the first page of each child.
        locks: places in this run or below it.
        used: when a look-up or a sequence last came here, in operations of the index.
    """

    __slots__ = ("blocks", "children", "locks", "pages", "parent", "start", "used")

    def __init__(self, parent: Node | None, start: int) -> None:
        self.parent: Node = self if parent is None else parent
        self.start = start
        self.pages: list[tuple[int, ...]] = []
        self.blocks: list[int] = []
        self.children: dict[tuple[int, ...], Node] = {}
        self.locks = 0
        self.used = 0

    @property
    def end(self) -> int:
        """Blocks between the root and whatever follows the run."""
        return self.start + len(self.pages)

    @property
    def label(self) -> tuple[int, ...]:
        """The tokens of the run."""
        return tuple(token for page in self.pages for token in page)


class Place:
    """How deep a sequence or a lock has come: so many blocks, the last of them in `node` or above it.

    `node` and all above it are locked, as whole runs. A split leaves the place at the lower half; if it was in the
    upper half, it climbs there when it moves next. A run that others lock does not grow, so a place beyond the end of
    its node means that what was there has left the tree.
    """

    __slots__ = ("depth", "node")

    def __init__(self, node: Node, depth: int) -> None:
        self.node = node
        self.depth = depth


class RadixIndex:
    """Looks a prompt up run by run.

    Args:
        block_size: b.

    Attributes:
        root: the empty beginning, with no label, no block and no lock.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.root = Node(None, 0)
        self._at: dict[int, tuple[Node, int]] = {}  # block: its node, blocks before it
        self._places: dict[str, Place] = {}  # of the sequences at work
        self._clock = 0

    def match(self, tokens: Sequence[int]) -> Match:
        most, why = longest(len(tokens), self.block_size)
        path, depth = self._find(tokens, most)
        blocks = [block for node in path for block in node.blocks]
        return Match(tuple(blocks[:depth]), depth, why if depth == most else "absent")

    def publish(self, seq_id: str, tokens: Sequence[int], table: Sequence[int]) -> None:
        """Go on from where this sequence stopped, O(1) a block; a leaf that nobody else locks grows in place.

        If what it published has left the tree meanwhile (the index had kept another sequence's equal block, and that
        was overwritten), there is nothing to hang the rest on: nothing more of it is entered.
        """
        place = self._places.setdefault(seq_id, Place(self.root, 0))
        while place.depth <= place.node.start and place.node is not self.root:
            self._climb(place)
        if place.depth > place.node.end:
            return
        self._clock += 1
        for index in range(place.depth, len(tokens) // self.block_size):
            if not self._advance(place, self._page(tokens, index), table[index]):
                return

    def forget(self, seq_id: str) -> None:
        place = self._places.pop(seq_id, None)
        if place is not None:
            self.unlock(place)

    def drop(self, block_id: int) -> tuple[int, ...]:
        found = self._at.get(block_id)
        if found is None:
            return ()
        node, depth = found
        return tuple(self._cut(node, depth - node.start))

    def content(self, block_id: int) -> tuple[int, ...]:
        node, depth = self._at[block_id]
        parts = [node.pages[: depth - node.start + 1]]
        while (node := node.parent) is not self.root:
            parts.append(node.pages)
        return tuple(token for pages in reversed(parts) for page in pages for token in page)

    def __contains__(self, block_id: object) -> bool:
        return block_id in self._at

    def __len__(self) -> int:
        return len(self._at)

    def lock(self, tokens: Sequence[int]) -> Place:
        """Keep the longest known beginning of `tokens`, in whole blocks, from being evicted; `unlock` ends that."""
        path, depth = self._find(tokens, len(tokens) // self.block_size)
        node = path[-1] if path else self.root
        if depth < node.end:
            node = self._split(node, depth - node.start)
        place = Place(node, depth)
        while node is not self.root:
            node.locks += 1
            node = node.parent
        return place

    def unlock(self, place: Place) -> None:
        """Give a lock back; a second time it does nothing."""
        while place.node is not self.root:
            self._climb(place)

    def evict(self, count: int) -> list[int]:
        """Take up to `count` unlocked blocks out of the tree: least recently used leaf first, its tail first."""
        leaves = [(n.used, i, n) for i, n in enumerate(self.nodes()) if not n.children and not n.locks]
        heapify(leaves)
        order, evicted = len(self._at), []
        while leaves and len(evicted) < count:
            leaf = heappop(leaves)[-1]
            evicted += reversed(self._cut(leaf, max(0, len(leaf.blocks) - (count - len(evicted)))))
            above = leaf.parent
            if not leaf.blocks and above is not self.root and not above.children and not above.locks:
                order += 1
                heappush(leaves, (above.used, order, above))
        return evicted

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents first."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            if node is not self.root:
                yield node
            stack.extend(reversed(node.children.values()))

    def _page(self, tokens: Sequence[int], index: int) -> tuple[int, ...]:
        return tuple(tokens[index * self.block_size : (index + 1) * self.block_size])

    def _find(self, tokens: Sequence[int], most: int) -> tuple[list[Node], int]:
        """The nodes that the tokens lead through, and after how many blocks they part; all are used now."""
        self._clock += 1
        path, node, depth = [], self.root, 0
        while depth < most:
            page = self._page(tokens, depth)
            if depth < node.end:
                if node.pages[depth - node.start] != page:
                    break
            elif page in node.children:
                node = node.children[page]
                node.used = self._clock
                path.append(node)
            else:
                break
            depth += 1
        return path, depth

    def _advance(self, place: Place, page: tuple[int, ...], block: int) -> bool:
        """Move the place one block on, entering the block if this is new. False if it is entered elsewhere."""
        node, at = place.node, place.depth - place.node.start
        if at < len(node.pages) and node.pages[at] != page:
            self._split(node, at)
            self._climb(place)
            node = place.node
            at = len(node.pages)
        if at == len(node.pages):
            child = node.children.get(page)
            if child is None:
                if block in self._at:
                    return False
                child = node
                if node is self.root or node.children or node.locks > 1:
                    child = node.children[page] = Node(node, place.depth)
                child.pages.append(page)
                child.blocks.append(block)
                self._at[block] = child, place.depth
            child.locks += child is not node
            place.node = child
        place.node.used = self._clock
        place.depth += 1
        return True

    def _climb(self, place: Place) -> None:
        place.node.locks -= 1
        place.node = place.node.parent

    def _split(self, node: Node, at: int) -> Node:
        """Give the first `at` blocks of the run to a new node above it, which is returned. O(at)."""
        head = Node(node.parent, node.start)
        head.pages, head.blocks = node.pages[:at], node.blocks[:at]
        head.locks, head.used = node.locks, node.used
        head.parent.children[head.pages[0]] = head
        del node.pages[:at], node.blocks[:at]
        node.parent, node.start = head, node.start + at
        head.children[node.pages[0]] = node
        for depth, block in enumerate(head.blocks, head.start):
            self._at[block] = head, depth
        return head

    def _cut(self, node: Node, keep: int) -> list[int]:
        """Take the run but for its first `keep` blocks, and all below it, out of the tree; returns their blocks."""
        if not keep:
            del node.parent.children[node.pages[0]]
        gone, below = node.blocks[keep:], list(node.children.values())
        del node.pages[keep:], node.blocks[keep:]
        node.children = {}
        while below:
            child = below.pop()
            gone += child.blocks
            below += child.children.values()
            child.pages, child.blocks, child.children = [], [], {}
        for block in gone:
            del self._at[block]
        return gone
