"""The HTTP engine against nginx with WebDAV: the contract, TLS, credentials, failures."""

from __future__ import annotations

from pathlib import Path

from tier_servers import Nginx, contract, nginx

BASIC = 'auth_basic "tier"; auth_basic_user_file {users};'
BEARER = 'if ($http_authorization != "Bearer tier-token") {{ return 401; }}'


def test_plain_files(dav: Nginx) -> None:
    contract(f"{dav.url}/team", "all")
    assert (dav.folder / "files" / "team" / "all" / "listspagebypage").exists() is False  # it lists nothing
    stored = dav.folder / "files" / "team" / "all" / "doeswhatanenginedoes" / "dir" / "b"
    assert stored.stat().st_size == 3 << 20


def test_nginx_is_found_to_ignore_conditions(dav: Nginx) -> None:
    contract(f"{dav.url}/cond?conditional=true", "all", "CreateIsRefused", "unsupported")


def test_tls(dav: Nginx) -> None:
    said = contract(f"{dav.tls_url}/tls", "x", "FailsAsExpected", "io")
    assert "ca_file" in said
    contract(f"{dav.tls_url}/tls?ca_file={dav.cert}", "all", "DoesWhatAnEngineDoes")
    # The certificate is one of 127.0.0.1, not of this name.
    other = dav.tls_url.replace("127.0.0.1", "localhost")
    contract(f"{other}/tls?ca_file={dav.cert}", "x", "FailsAsExpected", "io")


def test_client_certificates() -> None:
    with nginx('if ($ssl_client_verify != "SUCCESS") { return 403; }', verify_clients=True) as server:
        place = f"{server.tls_url}/tls?ca_file={server.cert}"
        contract(f"{place}&cert_file={server.cert}&key_file={server.key}", "all", "DoesWhatAnEngineDoes")
        contract(place, "x", "FailsAsExpected", "denied")


def test_failures_have_their_codes(dav: Nginx) -> None:
    contract(f"{dav.url}/sick", "x", "FailsAsExpected", "unavailable")
    said = contract(f"{dav.url}/elsewhere", "x", "FailsAsExpected", "io")
    assert "redirects are not followed" in said


def test_bearer_token(tmp_path: Path) -> None:
    with nginx(BEARER.format()) as server:
        token = tmp_path / "token"
        token.write_text("tier-token\n")
        contract(f"{server.url}?token_file={token}", "all", "DoesWhatAnEngineDoes")
        contract(f"{server.url}?token_env=TIER_TOKEN", "env", "ThreadsShareAnEngine", TIER_TOKEN="tier-token")
        said = contract(f"{server.url}?token_env=TIER_TOKEN", "x", "FailsAsExpected", "denied", TIER_TOKEN="hunter2")
        assert "hunter2" not in said


def test_user_and_password(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("me:{PLAIN}p@ss\n")
    with nginx(BASIC.format(users=users)) as server:
        with_user = server.url.replace("http://", "http://me:p%40ss@")
        contract(with_user, "all", "DoesWhatAnEngineDoes")
        said = contract(server.url.replace("http://", "http://me:hunter2@"), "x", "FailsAsExpected", "denied")
        assert "hunter2" not in said
