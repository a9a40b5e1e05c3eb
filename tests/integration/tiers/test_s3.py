"""The S3 engine against moto (what S3 means) and against a strict server (what S3 checks)."""

from __future__ import annotations

from pathlib import Path

from tier_servers import contract, free_port, strict_s3

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDSTRICT", "AWS_SECRET_ACCESS_KEY": "strict-secret"}


def strict_url(endpoint: str, more: str = "") -> str:
    return f"s3://strict-bucket/team/a%2Bb?region=eu-test-1&endpoint={endpoint}{more}"


def test_moto(moto: str) -> None:
    contract(f"s3://tier-bucket/prefix?endpoint={moto}", "all", **KEYS)


def test_strict_signatures() -> None:
    with strict_s3() as endpoint:
        contract(strict_url(endpoint), "all", **KEYS)
        wrong = KEYS | {"AWS_SECRET_ACCESS_KEY": "another-secret"}
        said = contract(strict_url(endpoint), "x", "FailsAsExpected", "denied", **wrong)
        assert "SignatureDoesNotMatch" in said and "another-secret" not in said
        contract(strict_url(endpoint, "&anonymous=true"), "x", "FailsAsExpected", "denied")
        said = contract(f"s3://other-bucket?region=eu-test-1&endpoint={endpoint}", "x", "FailsAsExpected", "io", **KEYS)
        assert "NoSuchBucket" in said


def test_sessions_end_and_clocks_differ() -> None:
    session = KEYS | {"AWS_SESSION_TOKEN": "session/token+1"}
    with strict_s3("--token", "session/token+1", "--expire-after", "5", "--clock-offset", "7200") as endpoint:
        contract(strict_url(endpoint), "all", "DoesWhatAnEngineDoes", **session)
        contract(strict_url(endpoint), "x", "FailsAsExpected", "denied", **KEYS)


def test_a_service_without_conditions_gives_no_leases() -> None:
    with strict_s3("--ignore-conditions") as endpoint:
        contract(strict_url(endpoint), "all", "CreateIsRefused", "unsupported", **KEYS)
        contract(strict_url(endpoint), "all", "ThreadsShareAnEngine", **KEYS)


def test_keys_of_a_profile(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[ci]\naws_access_key_id = AKIDSTRICT\naws_secret_access_key = strict-secret\n"
    )
    (tmp_path / ".aws" / "config").write_text("[profile ci]\nregion = eu-test-1\n")
    with strict_s3() as endpoint:
        url = f"s3://strict-bucket?profile=ci&endpoint={endpoint}"
        contract(url, "all", "ListsPageByPage", HOME=str(tmp_path))


def test_nobody_there() -> None:
    url = f"s3://strict-bucket?endpoint=http://127.0.0.1:{free_port()}"
    said = contract(url, "x", "FailsAsExpected", "unavailable", **KEYS)
    assert "check the address" in said
