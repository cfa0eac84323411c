"""An import-linter contract that its library has not: a list of the only outside packages that modules may import.

A deny list forgets the vendor that comes next year; an allow list has to be changed, and read, first.
"""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class VendorAllowList(Contract):
    """Packages and their descendants import nothing from outside but what is listed.

    Configuration options:
        source_modules: Packages of the project.
        allowed_vendors: Names of outside packages, of the standard library too; a name allows what lies below it.
    """

    type_name = "vendor_allow_list"
    source_modules = fields.SetField(subfield=fields.ModuleField())
    allowed_vendors = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002, FBT001 - the library's signature
        """Return the imports from outside that the list does not name."""
        allowed = {str(name) for name in self.allowed_vendors}  # type: ignore[attr-defined]  # fields are sets at run time
        ours = {module.name.partition(".")[0] for module in self.source_modules}  # type: ignore[attr-defined]
        breaches = [
            (importer, imported)
            for source in sorted(module.name for module in self.source_modules)  # type: ignore[attr-defined]
            for importer in sorted({source, *graph.find_descendants(source)})
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if imported.partition(".")[0] not in ours and not _is_allowed(imported, allowed)
        ]
        return ContractCheck(kept=not breaches, metadata={"breaches": breaches})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import that is not allowed."""
        for importer, imported in check.metadata["breaches"]:
            kind = "of the standard library " if imported.partition(".")[0] in sys.stdlib_module_names else ""
            output.print_error(f"{importer} imports {imported}, which is {kind}not in allowed_vendors", bold=False)


def _is_allowed(name: str, allowed: set[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:length]) in allowed for length in range(1, len(parts) + 1))
