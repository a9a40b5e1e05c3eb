"""Arrows point down only: which folder may include or link which, and where third-party code may appear."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import PurePath

import tree

# folder -> folders it may include. client/cli and client/worker are the client as well.
MAY_INCLUDE = {
    "base": {"base"},
    "cache": {"base", "cache"},
    "bucketing": {"base", "bucketing"},
    "client": {"base", "bucketing", "client"},
    "daemon": {"base", "cache", "bucketing", "daemon"},
}
# The protocol's types are the one part of the client that the daemon shares.
SHARED_HEADERS = {"daemon": {"client/protocol.hpp", "client/types.hpp"}}
# third-party header prefix -> (folders, kinds of file) it may appear in
THIRD_PARTY = {
    "rocksdb/": ({"cache"}, (".cpp", ".hpp")),
    "boost/asio": ({"daemon", "client"}, (".cpp", "daemon/session.hpp")),
    "boost/beast": ({"daemon", "client"}, (".cpp",)),
    "openssl/": ({"base", "cache"}, (".cpp",)),
    "spdlog/": ({"base"}, (".cpp",)),
    "toml++/": ({"base"}, (".cpp", "base/toml_text.hpp")),
    "curl/": ({"cache/tier"}, (".cpp", "cache/tier/curl_library.hpp")),
    "zstd": ({"base", "cache"}, (".cpp",)),
    "CLI/": ({"client", "daemon"}, (".cpp", ".hpp")),
    "torch/": ({"client/torch"}, (".cpp", ".hpp")),
    "gtest/": (set(), ()),
    "gmock/": (set(), ()),
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
PYTHON_MAY_IMPORT = {"torch", "sympy", "neuroncache"}  # torch brings sympy: its symbolic sizes are of it


def check_cpp(name: str, problems: list[str]) -> None:
    layer = PurePath(name).parts[0]
    for match in INCLUDE.finditer(tree.text(name)):
        line = tree.text(name).count("\n", 0, match.start()) + 1
        target = match.group(2)
        if match.group(1) == '"':
            first = PurePath(target).parts[0]
            if target in SHARED_HEADERS.get(layer, set()):
                continue
            if first not in MAY_INCLUDE:
                problems.append(f'{name}:{line}: "{target}": name our own headers from the root of the tree')
            elif first not in MAY_INCLUDE[layer]:
                allowed = ", ".join(sorted(MAY_INCLUDE[layer]))
                problems.append(f"{name}:{line}: {layer}/ may not include {target} (only {allowed})")
            continue
        for prefix, (folders, kinds) in THIRD_PARTY.items():
            inside = any(name.startswith(f"{folder}/") for folder in folders)
            if target.startswith(prefix) and not (inside and name.endswith(kinds)):
                where = ", ".join(f"{folder}/*{kind}" for folder in sorted(folders) for kind in kinds) or "tests/"
                problems.append(f"{name}:{line}: <{target}> belongs into {where} only")


def check_names(name: str, problems: list[str]) -> None:
    """No type of RocksDB leaves cache/, not even as a forward declaration."""
    if not name.startswith("cache/") and "rocksdb::" in tree.without_comments(tree.text(name)):
        problems.append(f"{name}: names rocksdb::, which only cache/ knows")


def check_links(name: str, problems: list[str]) -> None:
    layer = PurePath(name).parts[0]
    for other in re.findall(r"\bnc_(base|cache|bucketing|client|daemon)\b", tree.text(name)):
        if other not in MAY_INCLUDE[layer] and not (layer == "daemon" and other == "client"):
            problems.append(f"{name}: {layer}/ may not link nc_{other}")


def check_python(name: str, problems: list[str]) -> None:
    for node in ast.walk(ast.parse(tree.text(name), name)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            top = module.split(".")[0]
            if top not in PYTHON_MAY_IMPORT and top not in sys.stdlib_module_names:
                problems.append(f"{name}:{node.lineno}: imports {top}; the shim may use torch and the standard library")


def main() -> None:
    problems: list[str] = []
    checked = 0
    for name in tree.matching(".cpp", ".hpp", "CMakeLists.txt", ".py"):
        layer = PurePath(name).parts[0]
        if layer in MAY_INCLUDE:
            checked += 1
            if name.endswith("CMakeLists.txt"):
                check_links(name, problems)
            elif name.endswith((".cpp", ".hpp")):
                check_cpp(name, problems)
                check_names(name, problems)
        elif name.startswith("python_shim/"):
            checked += 1
            check_python(name, problems)
    tree.finish("layers", problems, checked)


main()
