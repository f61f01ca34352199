"""Questions about a stack's source that its syntax trees answer; nothing is run.

* `definitions`: a class, function or method by dotted name; whether a body is a stub; decorators.
* `modules`: a dotted module name to a file of the tree; what a name in a file refers to, through imports and
  re-exports.
* `classes`: bases and the method resolution order across files; where a method is really defined.
* `literals`: top-level assignments of a name, and values of literals.
* `uses`: calls of a name with their arguments, and comparisons of an attribute with a literal.

Each answer carries a `Place`. What is not there is None or empty; a file that cannot be read raises
`SourceError`.
"""

from draftproof.stacks.syntax.classes import ClassOrder, base_names, class_order, find_method
from draftproof.stacks.syntax.definitions import (
    ClassDefinition,
    FunctionDefinition,
    decorator_names,
    find_class,
    find_function,
    is_stub,
    top_level,
)
from draftproof.stacks.syntax.literals import (
    NOT_LITERAL,
    TopLevelValue,
    assignments,
    literal,
    top_level_value,
)
from draftproof.stacks.syntax.modules import ImportedName, Resolved, imported_names, module_file, resolve_name
from draftproof.stacks.syntax.names import dotted_name
from draftproof.stacks.syntax.uses import (
    AttributeComparison,
    FunctionCall,
    attribute_comparisons,
    calls_of,
    string_constants,
)

__all__ = [
    "NOT_LITERAL",
    "AttributeComparison",
    "ClassDefinition",
    "ClassOrder",
    "FunctionCall",
    "FunctionDefinition",
    "ImportedName",
    "Resolved",
    "TopLevelValue",
    "assignments",
    "attribute_comparisons",
    "base_names",
    "calls_of",
    "class_order",
    "decorator_names",
    "dotted_name",
    "find_class",
    "find_function",
    "find_method",
    "imported_names",
    "is_stub",
    "literal",
    "module_file",
    "resolve_name",
    "string_constants",
    "top_level",
    "top_level_value",
]
