"""enable and disable: the lines do in a real shell what they say."""

from __future__ import annotations

import subprocess

from cli_support import BIN, Home

WRAPPERS = str(BIN.parent.resolve() / "libexec")


def test_the_lines_work_in_a_shell(home: Home) -> None:
    program = str(BIN / "neuroncache")
    script = f'''set -e
eval "$({program} enable)"; command -v neuronx-cc; echo "$PATH"
eval "$({program} disable)"; command -v neuronx-cc || true; echo "$PATH"'''
    env = {**home.env, "PATH": "/usr/bin:/bin", "SHELL": "/bin/bash"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True)
    found, enabled, disabled = done.stdout.splitlines()
    assert found == f"{WRAPPERS}/neuronx-cc"
    assert (enabled, disabled) == (f"{WRAPPERS}:/usr/bin:/bin", "/usr/bin:/bin")
    assert home.ok("enable", "--print-dir").out == WRAPPERS + "\n"


def test_the_start_file_keeps_what_else_is_in_it(home: Home) -> None:
    file = home.dir / ".bashrc"
    file.write_text("alias a=b")
    document = home.json("enable", "enable", "--write", "--shell", "bash")
    assert (document["directory"], document["file"], document["changed"]) == (WRAPPERS, str(file), True)
    once = file.read_text()
    assert once.startswith("alias a=b\n") and document["line"] in once
    assert "Nothing to change" in home.ok("enable", "--write", "--shell", "bash").out
    assert file.read_text() == once
    assert home.ok("disable", "--write", "--shell", "bash", "--format", "tab").rows()[0]["changed"] == "1"
    assert file.read_text() == "alias a=b\n"


def test_a_shell_that_is_not_known_gets_no_line_of_another(home: Home) -> None:
    done = home.run("enable", SHELL="/bin/tcsh")
    assert done.status != 0 and done.out == "" and "tcsh" in done.err and "--print-dir" in done.err
    assert home.run("enable", SHELL="/bin/dash").out.startswith("export PATH=")


def test_other_shells(home: Home) -> None:
    assert home.json("enable", "enable", "--shell", "fish")["line"].startswith("set -gx PATH ")
    home.ok("enable", "--write", "--shell", "fish")
    assert "set -gx PATH" in (home.dir / ".config" / "fish" / "config.fish").read_text()
