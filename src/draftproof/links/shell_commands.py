"""Commands that anyone can paste into a shell to see what a claim rests on.

What headers and configs say is shown with plain tools (grep, ls, curl, Python's standard library), so that an
observation of draftproof can be checked without trusting draftproof. Values of tensors need decoding and are
shown by ``draftproof inspect --tensor``.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class ShellCommands:
    """Commands about one checkpoint.

    Attributes:
        name: the checkpoint as the user gave it.
        base: folder, or URL under which the repository's files lie.
        remote: `base` is a URL.
    """

    name: str
    base: str
    remote: bool

    def field(self, file: str, key: str) -> str:
        """Shows every line of a JSON file that holds a key."""
        return self._pipe(file, f"grep -n {shlex.quote(json_key(key))}")

    def json(self, file: str) -> str:
        """Parses a JSON file, and shows where it is broken."""
        return self._pipe(file, "python -m json.tool")

    def tensor_names(self, file: str, part: str) -> str:
        """Shows the lines of an index that hold a part of a tensor name."""
        return self._pipe(file, f"grep {shlex.quote(part)}")

    def header(self, file: str, part: str) -> str:
        """Shows dtype, shape and place of the tensors of a file whose names hold a part."""
        if self.remote:
            return f"draftproof inspect {shlex.quote(self.name)} --tensor {shlex.quote(part)}"
        program = (
            "import json,struct,sys; f=open(sys.argv[1],'rb'); "
            "h=json.loads(f.read(struct.unpack('<Q',f.read(8))[0])); "
            "[print(k,v) for k,v in h.items() if sys.argv[2] in k]"
        )
        return f'python -c "{program}" {shlex.quote(self._path(file))} {shlex.quote(part)}'

    def values(self, tensor: str) -> str:
        """Shows figures of a tensor's values."""
        return f"draftproof inspect {shlex.quote(self.name)} --tensor {shlex.quote(tensor)}"

    def files(self, *files: str) -> str:
        """Shows the sizes of files, or of everything."""
        if self.remote:
            target = self._path(files[0]) if files else self.base
            return f"curl -sIL {shlex.quote(target)}"
        return " ".join(["ls -l", *(shlex.quote(self._path(file)) for file in files or ("",))])

    def _pipe(self, file: str, reader: str) -> str:
        path = shlex.quote(self._path(file))
        return f"curl -sL {path} | {reader}" if self.remote else f"{reader} {path}"

    def _path(self, file: str) -> str:
        return f"{self.base}/{file}" if file else self.base


def json_key(path: str) -> str:
    """The last key of a JSON path, as it stands in the file: `"mtp_num_hidden_layers"`."""
    return f'"{path.rpartition(".")[2]}"'
