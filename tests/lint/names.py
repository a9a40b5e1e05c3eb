"""Documents and code agree on names: a documented environment name or setting is read, and what is read is documented."""

from __future__ import annotations

import re

import tree

VARIABLE = re.compile(r"\bNEURONCACHE(?:_[A-Z0-9]+)*\b(?!_)")
CODE = (".cpp", ".hpp", ".py")
# Read by no code of ours: the shape of names, and what tests set for themselves.
SHAPES = {"NEURONCACHE_NAME"}


def table() -> dict[str, str]:
    """Setting -> who reads it, from the rows of the one table."""
    row = re.compile(r'\{\s*"([a-z0-9_]+)",\s*T::k\w+,\s*"[^"]*",\s*"[^"]*",\s*(?:true|false),\s*"(\w+)"')
    return dict(row.findall(tree.text("base/settings_table.cpp")))


def literals(names: list[str]) -> set[str]:
    """Environment names that occur as string literals."""
    found: set[str] = set()
    for name in names:
        source = tree.without_comments(tree.text(name)) if name.endswith((".cpp", ".hpp")) else tree.text(name)
        for literal in re.findall(r'"([^"\n]*)"|\'([^\'\n]*)\'', source):
            found.update(VARIABLE.findall("".join(literal)))
    return found


def reads(names: list[str], setting: str) -> bool:
    quoted = re.compile(rf'"{setting}"|\bconfig\.{setting}\b')
    return any(quoted.search(tree.text(name)) for name in names)


def main() -> None:
    problems: list[str] = []
    settings = table()
    cpp = [
        n for n in tree.matching(".cpp", ".hpp") if n.split("/")[0] in tree.LAYERS and n != "base/settings_table.cpp"
    ]
    shim = [n for n in tree.matching(".py", under="python_shim/") if not n.endswith("/config.py")]
    code = literals(cpp + tree.matching(".py", under="python_shim/") + ["deploy/wheel/neuroncache_wheel.py"])
    from_table = {f"NEURONCACHE_{name.upper()}" for name in settings}
    documents = [
        n
        for n in tree.files()
        if n.endswith((".md", ".1", ".service", ".socket", ".toml")) and not n.startswith("tests/")
    ]
    documented: dict[str, str] = {}
    for name in documents:
        for variable in VARIABLE.findall(tree.text(name)):
            documented.setdefault(variable, name)

    for variable, name in sorted(documented.items()):
        if variable not in code | from_table | SHAPES:
            problems.append(f"{name}: names {variable}, which no code reads")
    for variable in sorted(code - from_table - documented.keys()):
        problems.append(f"{variable} is read by the code and in no document")
    versions = re.findall(r"project\(neuroncache VERSION (\S+)", tree.text("CMakeLists.txt"))
    versions += re.findall(r'VERSION = "([^"]+)"', tree.text("python_shim/neuroncache/_version.py"))
    if len(set(versions)) != 1:
        problems.append(f"CMakeLists.txt and _version.py disagree about the version: {versions}")
    reference = tree.text("docs/settings.md") if "docs/settings.md" in tree.files() else ""
    for setting, reader in sorted(settings.items()):
        if f"`{setting}`" not in reference:
            problems.append(f"docs/settings.md does not describe the setting `{setting}`")
        places = {"shim": shim, "daemon": cpp, "client": cpp, "all": cpp}[reader]
        if not reads(places, setting):
            problems.append(f"the setting {setting} is in the table, and no code of its reader ({reader}) reads it")
    tree.finish("names", problems, len(settings) + len(documented))


main()
