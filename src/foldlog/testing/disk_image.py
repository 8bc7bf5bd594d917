"""The contents of a disk at one moment: names and bytes, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from foldlog.files.memory import DirectoryNode, FileNode, MemoryFiles


@dataclass(frozen=True, slots=True)
class DiskImage:
    """The contents of a disk after a power cut: nested names, with bytes at the leaves."""

    tree: dict[str, Tree]

    def fingerprint(self) -> int:
        """Equal for equal contents. Cheap if images share bytes objects, which cache their hash."""
        return _fingerprint(self.tree)

    def files(self) -> MemoryFiles:
        """A plain file system over the image, which it never changes."""
        return MemoryFiles(_grow(self.tree))


Tree = dict[str, "Tree"] | bytes


def _fingerprint(tree: Tree) -> int:
    if isinstance(tree, bytes):
        return hash(tree)
    return hash(frozenset((name, _fingerprint(inner)) for name, inner in tree.items()))


def _grow(tree: dict[str, Tree]) -> DirectoryNode:
    return DirectoryNode(
        {name: FileNode(inner) if isinstance(inner, bytes) else _grow(inner) for name, inner in tree.items()}
    )
