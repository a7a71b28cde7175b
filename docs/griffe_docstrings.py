"""What mkdocstrings has to know of our docstrings: four habits that Griffe does not share.

* ``Example:`` is one example with ``>>>``; Griffe calls that section ``Examples:``.
* ``Raises:`` may name several errors in one line, or refer to another method (``As `publish`; …``).
* The ``Args:`` of a ``msgspec`` struct are its fields; it has no ``__init__`` to look into.
* Names in single backticks are links where there is something to link to.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = "dmq_actors"
_STRUCTS = {"Struct", "Message", "StoredMessage"}
_SECTION = re.compile(r"^Raises:\n((?:[ ]+.*\n?|\n(?=[ ]))+)", re.MULTILINE)
_ERRORS = re.compile(r"[A-Z]\w+(?:, [A-Z]\w+)*")
_NAME = re.compile(r"(?<![`\w])`([A-Za-z_][\w.]*)`(?!`)")


class OurDocstrings(griffe.Extension):
    """Rewrites docstrings after the package is loaded and before they are parsed."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Griffe's hook: a package was loaded."""
        if pkg.name != _PACKAGE:
            return
        public = {
            name: item.target_path if isinstance(item, griffe.Alias) else item.path
            for name, item in pkg.members.items()
            if name in (pkg.exports or ())
        }
        for item in list(_walk(pkg)):
            if isinstance(item, griffe.Class) and _is_struct(item):
                _add_constructor(item)
            if item.docstring is not None:
                text = item.docstring.value.replace("\nExample:\n", "\nExamples:\n")
                text = _SECTION.sub(_split_errors, text)
                item.docstring.value = _NAME.sub(partial(_link, item, public), text)


def _walk(item: griffe.Object) -> Iterator[griffe.Object]:
    yield item
    for member in item.members.values():
        if isinstance(member, griffe.Object):
            yield from _walk(member)


def _is_struct(item: griffe.Class) -> bool:
    return any(str(base).split(".")[-1] in _STRUCTS for base in item.bases)


def _add_constructor(item: griffe.Class) -> None:
    fields = [
        griffe.Parameter(
            field.name,
            annotation=field.annotation,
            default=str(field.value) if field.value is not None else None,
            kind=griffe.ParameterKind.positional_or_keyword,
        )
        for field in item.attributes.values()
        if field.annotation is not None
    ]
    item.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*fields)))


def _split_errors(section: re.Match[str]) -> str:
    """One line for each error; what begins with no error becomes a sentence of its own."""
    entries: list[str] = []
    for line in section[1].rstrip().split("\n"):
        if line.startswith("    ") and not line.startswith("     "):
            entries.append(line.strip())
        else:
            entries[-1] += " " + line.strip()
    listed, sentences = [], []
    for entry in entries:
        errors, colon, when = entry.partition(": ")
        if colon and _ERRORS.fullmatch(errors):
            listed += [f"    {error}: {when}" for error in errors.split(", ")]
        else:
            sentences.append(f"**Raises:** {entry}\n")
    return "\n".join([*sentences, *(["Raises:", *listed, ""] if listed else [])])


def _link(item: griffe.Object, public: dict[str, str], name: re.Match[str]) -> str:
    head, *rest = name[1].split(".")
    owner = item if isinstance(item, griffe.Class) else item.parent
    if not rest and isinstance(owner, griffe.Class) and head in owner.members:
        return f"[`{head}`][{owner.canonical_path}.{head}]"
    if head in public:
        return f"[`{name[1]}`][{'.'.join([public[head], *rest])}]"
    return name[0]
