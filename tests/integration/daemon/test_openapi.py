"""docs/openapi.json against the running daemon: every request and answer fits, and nothing is left out on either side."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from daemon_support import ROOT, Answer, Client, Home, digest, eventually, key_of, manifest, parts_of
from jsonschema import Draft202012Validator

DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text())


def strict(schema: Any) -> Any:
    """The schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: strict(value) for name, value in schema.items()}
    if out.get("type") == "object" and "properties" in out:
        out.setdefault("additionalProperties", False)
    return out


STRICT = {"components": strict(copy.deepcopy(DOCUMENT["components"]))}


def check(value: Any, schema: dict[str, Any]) -> None:
    Draft202012Validator({**STRICT, **schema}).validate(value)


class Checked:
    """A client whose every exchange is held against the document."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: set[tuple[str, str, int]] = set()

    def call(self, method: str, target: str, body: Any = None, *, fits: bool = True) -> Answer:
        path, _, query = target.partition("?")
        template = self._template(path)
        operation = DOCUMENT["paths"][template][method.lower()]
        if fits:
            self._check_parameters(operation, query)
            if isinstance(body, dict):
                check(body, operation["requestBody"]["content"]["application/json"]["schema"])
        answer = self.client.call(method, target, body)
        described = operation["responses"][str(answer.status)]
        content = described.get("content", {})
        if method == "HEAD" or answer.status == 204:
            assert content == {} and answer.body == b""
        else:
            assert list(content) == [answer.headers["Content-Type"]]
            if "application/json" in content:
                check(answer.json, content["application/json"]["schema"])
        self.seen.add((method.lower(), template, answer.status))
        return answer

    def _template(self, path: str) -> str:
        exact = [template for template in DOCUMENT["paths"] if template == path]
        if exact:
            return str(exact[0])
        for template in DOCUMENT["paths"]:
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
                return str(template)
        raise AssertionError(f"{path} is not in the document")

    def _check_parameters(self, operation: dict[str, Any], query: str) -> None:
        named = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "query"}
        for pair in filter(None, query.split("&")):
            assert pair.split("=")[0] in named


def test_the_document_is_well_formed() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    used = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)))
    assert used == set(DOCUMENT["components"]["schemas"])
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path)), path


def test_the_document_and_the_router_name_the_same_requests() -> None:
    source = (ROOT / "daemon" / "router.cpp").read_text()
    routes = set()
    for helper, method, pattern in re.findall(r'(get|post|Method::k(\w+)),?\(?\s*"(/v1/[^"]+)"', source):
        routes.add(((method or helper).lower(), pattern))
    documented = {(method, path) for path, operations in DOCUMENT["paths"].items() for method in operations}
    assert routes == documented


def queue_of_a_cluster(record: dict[str, Any], data: bytes) -> set[tuple[str, str, int]]:
    """What a daemon answers whose tier holds such a queue."""
    home = Home()
    try:
        (home.dir / "tier").mkdir()
        home.start("--tiers", f"file://{home.dir}/tier", "--trust", "any")
        daemon = Checked(home.client())
        daemon.client.put_blob(data)
        assert daemon.call("POST", "/v1/queue/cluster", {"record": record}).json["queued"] == 1
        assert len(daemon.call("GET", "/v1/queue/cluster?limit=1").json["jobs"]) == 1
        daemon.call("GET", "/v1/queue/cluster?limit=x", fits=False)
        assert daemon.call("POST", "/v1/queue/take", {"cluster": True}).json["state"] == "job"
        assert daemon.call("POST", "/v1/queue/take", {"cluster": True}).json["pending"] == 1
        daemon.call("POST", "/v1/queue/cluster", {"key": key_of("none")})
        assert daemon.call("DELETE", "/v1/queue/cluster?failed=0&dry_run=1").json == {"removed": 0}
        return daemon.seen
    finally:
        home.clean()


def test_every_request_fits_the_document(home: Home) -> None:
    (home.dir / "tier").mkdir()
    home.start("--tiers", f"file://{home.dir}/tier?write_only=true", "--trust", "any")
    daemon = Checked(home.client())
    other = Checked(home.client())
    call = daemon.call
    a, b, c = key_of("a"), key_of("b"), key_of("c")

    def acquire(key: str, by: Checked = daemon, **fields: Any) -> Any:
        return by.call("POST", f"/v1/actions/{key}/acquire", {"intent": "build", **fields}).json

    call("GET", "/v1/hello")
    acquired = acquire(a, kind="graph", label="a", program="t", compiler="stub 1", model="m", parts=parts_of("a"))
    lease = acquired["lease"]
    beat = {"key": a, "fence": lease["fence"], "progress": "half", "reserved_bytes": 9, "cores": 1, "detached": True}
    call("POST", f"/v1/leases/{lease['id']}/heartbeat", beat)
    call("POST", f"/v1/leases/{'0' * 32}/heartbeat", beat)
    call("POST", f"/v1/leases/{lease['id']}/heartbeat", {}, fits=False)
    held = {"lease": lease["id"], "key": a, "fence": lease["fence"]}
    demand = {
        "compiler": "stub 1",
        "input_bytes": 10,
        "cores": 1,
        "minimum_bytes": 1 << 50,
        "alone": True,
        "wait_ms": 1,
    }
    assert call("POST", "/v1/admission", {**held, **demand}).json["state"] == "admitted"
    beside = acquire(key_of("d"), other)["lease"]
    beside = {"lease": beside["id"], "key": key_of("d"), "fence": beside["fence"]}
    assert other.call("POST", "/v1/admission", beside).json["state"] == "waiting"
    call("POST", "/v1/admission", {**held, "fence": 99})
    call("POST", "/v1/admission", {}, fits=False)
    call("GET", "/v1/builds")
    other.call("DELETE", f"/v1/leases/{beside['lease']}?key={beside['key']}&fence={beside['fence']}")
    waiting = acquire(a, other, wait_ms=1)
    assert waiting["state"] == "building"
    acquire(a, other, ticket=waiting["ticket"])
    other.call("POST", "/v1/bypass", {"reason": "test", "ticket": waiting["ticket"], "namespace": "n", "count": 1})
    call("POST", "/v1/bypass", {}, fits=False)
    call("GET", "/v1/leases")

    large, small = b"large" * 50_000, b"small"
    commit = f"/v1/actions/{a}?lease={lease['id']}&fence={lease['fence']}"
    call("PUT", commit, manifest("a", {"large": large}))
    for blob in (large, small):
        call("PUT", f"/v1/blobs/{digest(blob)}?compress=never&lease={lease['id']}", blob)
    call("PUT", f"/v1/blobs/{digest(small)}", small)
    call("PUT", f"/v1/blobs/{'0' * 64}", b"wrong")
    call("PUT", f"/v1/blobs/{'0' * 64}?compress=maybe", b"wrong", fits=False)
    other_commit = f"/v1/actions/{a}?lease={'0' * 32}&fence=1"
    call("PUT", other_commit, manifest("a", {"large": large, "small": small}))
    call("PUT", commit, manifest("a", {"large": large, "small": small}))
    call("PUT", commit, manifest("a", {"large": large, "small": small}))
    call("PUT", commit, manifest("b", {"large": large}))
    call("PUT", f"/v1/actions/{c}?import=1", manifest("c", {"large": large}))
    assert acquire(a)["state"] == "hit"
    call("GET", f"/v1/actions/{a}")
    call("GET", f"/v1/actions/{b}")
    call("GET", "/v1/actions/x", fits=False)
    call("GET", f"/v1/blobs/{digest(large)}")
    call("GET", f"/v1/blobs/{'0' * 64}")
    assert call("POST", f"/v1/blobs/{digest(large)}/check", {}).json == {"well": True}
    call("POST", f"/v1/blobs/{'0' * 64}/check", {})
    call("HEAD", f"/v1/blobs/{digest(large)}")
    call("HEAD", f"/v1/blobs/{'0' * 64}")
    call("HEAD", f"/v1/actions/{key_of('never')}")
    call("HEAD", f"/v1/actions/{a}")

    assert call("POST", f"/v1/actions/{b}/acquire", {"intent": "lookup"}).json["state"] == "miss"
    lease = acquire(b, parts=parts_of("b"), compiler="stub 1")["lease"]
    failed = {"key": b, "fence": lease["fence"], "class": "deterministic", "message": "m", "log": "l", "exit_code": 7}
    failed["peak_rss_bytes"] = 9
    call("POST", f"/v1/leases/{lease['id']}/fail", {}, fits=False)
    call("POST", f"/v1/leases/{lease['id']}/fail", failed)
    call("POST", f"/v1/leases/{lease['id']}/fail", failed)
    assert acquire(b, recording="run")["state"] == "failed"
    assert acquire(a, recording="run")["state"] == "hit"
    missed = acquire(key_of("e"), recording="run", compiler="stub 1", parts=parts_of("e"))["lease"]
    call("DELETE", f"/v1/leases/{missed['id']}?key={key_of('e')}&fence={missed['fence']}")
    first = call("GET", "/v1/recordings/run/outcomes?limit=2").json
    rest = call("GET", f"/v1/recordings/run/outcomes?after={first['next']}").json
    outcomes = {one["key"]: one["outcome"] for one in first["outcomes"] + rest["outcomes"]}
    assert outcomes == {a: "hit", b: "failed", key_of("e"): "unfinished"}
    call("GET", "/v1/recordings/run/outcomes?limit=x", fits=False)
    assert call("POST", "/v1/recordings/run~1/outcomes", {"from": "run"}).json == {"moved": 3}
    call("POST", "/v1/recordings/run/outcomes", {"from": "a/b"}, fits=False)
    assert call("DELETE", "/v1/recordings/run~1/outcomes").json == {"forgotten": 3}
    lease = acquire(b, retry=True)["lease"]
    call("DELETE", f"/v1/leases/{lease['id']}?key={b}&fence={lease['fence']}")
    call("DELETE", f"/v1/leases/{lease['id']}?key={b}&fence={lease['fence']}")
    call("POST", f"/v1/actions/{a}/acquire", {}, fits=False)

    record = {
        "v": 1,
        "key": key_of("q"),
        "namespace": "default",
        "kind": "neff",
        "label": "q",
        "program": "t",
        "model": "m",
    }
    record |= {"compiler": "stub 1", "parts": parts_of("q"), "argv": ["compile", "{in/model}"], "env": {"A": "b"}}
    record["inputs"] = [{"name": "model", "digest": digest(small), "size": len(small), "mode": 0o644}]
    recorded = f"/v1/recordings/run/actions/{key_of('q')}"
    call("PUT", recorded, {**record, "inputs": [{"name": "x", "digest": "0" * 64, "size": 1, "mode": 0}]})
    call("GET", recorded)
    call("PUT", recorded, record)
    call("PUT", recorded, record)
    call("PUT", recorded, {}, fits=False)
    call("GET", recorded)
    call("GET", "/v1/recordings")
    call("GET", "/v1/recordings/run?limit=1")
    call("GET", "/v1/recordings/run?limit=x", fits=False)
    call("GET", "/v1/recordings/none")
    call("POST", "/v1/queue", {"key": key_of("q")})
    call("POST", "/v1/queue", {"recording": "run"})
    call("POST", "/v1/queue", {"record": record})
    call("POST", "/v1/queue", {"recording": "none"})
    call("POST", "/v1/queue", {}, fits=False)
    call("GET", "/v1/queue?state=queued&after=0&limit=1")
    call("GET", "/v1/queue?state=lost", fits=False)
    assert call("POST", "/v1/queue/take", {"compiler": "stub"}).json["state"] == "job"
    assert call("POST", "/v1/queue/take", {}).json["state"] == "empty"
    call("POST", "/v1/queue/take", {"compiler": 1}, fits=False)
    call("DELETE", "/v1/queue")
    lost = f"/v1/recordings/run/actions/{key_of('lost')}"
    call("POST", lost, {"label": "q", "compiler": "stub 1", "lost": "an input was a pipe"})
    call("POST", lost, {}, fits=False)
    call("POST", "/v1/queue/take", {"cluster": True})
    guest = f"/v1/cluster/leases/{a}.7"
    call("GET", guest)
    assert call("PUT", guest + "?create=1", b"a lease").status == 201
    assert call("PUT", guest + "?create=1", b"another").status == 409
    call("PUT", guest, b"its beat")
    call("PUT", guest, b"x" * 9000)
    assert call("GET", guest).body == b"its beat"
    call("DELETE", guest)
    for method, body in (("GET", None), ("PUT", b"x"), ("DELETE", None)):
        call(method, f"/v1/cluster/leases/{a}.0", body, fits=False)
    call("GET", "/v1/queue/cluster")
    call("POST", "/v1/queue/cluster", {"record": record})
    call("DELETE", "/v1/queue/cluster")
    call("DELETE", "/v1/recordings/run")
    call("DELETE", "/v1/recordings/run")

    program = "ab" * 32
    sizes = [{"family": "seq", "sizes": [[5, 2], [9, 1]]}, {"family": "batch", "sizes": [[1, 3], [4, 4]]}]
    pairs = [{"families": ["batch", "seq"], "sizes": [[1, 5, 1], [4, 9, 2]]}]
    seen = {"program": program, "job": "j", "families": sizes, "joint": pairs, "compile_ms": 5, "label": "l"}
    seen |= {"calls": 3, "calls_us": 900}
    call("POST", "/v1/buckets/observe", seen)
    call("POST", "/v1/buckets/observe", {}, fits=False)
    wanted = [{"family": "seq", "tile": 8, "floor": 8, "max": 64, "seen": [[7, 1]]}, {"family": "batch"}]
    costs = ["linear", "quadratic", {"quadratic": 4096}, {"table": [[8, 10], [64, 20]]}]
    for number, cost in enumerate(costs):
        limits = {"max_buckets": 4, "max_waste": 0.5, "max_artifacts": 9, "joint": [["batch", "seq"]], "after": 0}
        job = {"program": program, "job": f"j{number}", "families": wanted, "cost": cost}
        call("POST", "/v1/buckets/plan", {**job, **limits})
    call("POST", "/v1/buckets/plan", {}, fits=False)
    call("GET", "/v1/buckets")
    call("GET", f"/v1/buckets?program={program}")
    call("GET", "/v1/buckets?program=x", fits=False)

    tensor = {"t": "float32", "d": ["s0", 8], "s": [8, 1]}
    graph: dict[str, Any] = {"ir": 1, "role": "inference", "symbols": [{"id": "s0", "range": [2, "inf"]}]}
    graph["inputs"] = [{"kind": "data", "type": tensor}]
    graph["nodes"] = [{"op": "aten.sum.dim_IntList", "a": [{"v": 0}, [0]], "out": {"t": "float32", "d": [8], "s": [1]}}]
    graph["outputs"] = [{"v": 1}]
    planned = call("POST", "/v1/padding/plan", {"request": 1, "forward": graph}).json
    assert planned["forward"] and planned == call("POST", "/v1/padding/plan", {"request": 1, "forward": graph}).json
    graph["nodes"][0]["op"] = "mylib.mystery.default"
    assert call("POST", "/v1/padding/plan", {"request": 1, "forward": graph}).json["refusal"]["node"] == 0
    call("POST", "/v1/padding/plan", {}, fits=False)

    (tier,) = call("GET", "/v1/tiers").json["tiers"]
    asked = {"tier": tier["address"], "namespace": "default", "model": "", "compiler": "stub", "limit": 9, "after": ""}
    asked |= {"older_than_s": 0, "newer_than_s": 86400, "dry_run": False}
    call("POST", "/v1/tiers/push", asked)
    assert eventually(lambda: (home.dir / "tier/v1/entries" / a[:2] / a).exists())
    assert call("POST", "/v1/tiers/pull", asked).json["entries"][0]["state"] == "here"
    call("POST", "/v1/tiers/verify", {"deep": True, "repair": True})
    call("POST", "/v1/tiers/prune", {**asked, "dry_run": True})
    call("POST", "/v1/tiers/collect", {"grace_s": 86400})
    for verb in ("push", "pull", "prune", "verify", "collect"):
        call("POST", f"/v1/tiers/{verb}", {"tier": "file:///nowhere"})
        call("POST", f"/v1/tiers/{verb}", {"limit": "all"}, fits=False)

    call("GET", "/v1/stats")
    call("GET", "/v1/stats?namespace=n")
    call("GET", "/v1/entries?limit=1&kind=graph&failed=0&older_than_s=0")
    call("GET", "/v1/entries?limit=none", fits=False)
    call("GET", f"/v1/entries/{a[:10]}")
    call("GET", f"/v1/entries/{b}")
    call("GET", f"/v1/entries/{'0' * 64}")
    call("GET", "/v1/entries/xyz", fits=False)
    call("GET", "/v1/misses?limit=10")
    call("GET", "/v1/misses?limit=many", fits=False)
    call("POST", "/v1/pins", {"key": a, "pinned": True})
    call("POST", "/v1/pins", {"key": "0" * 64, "pinned": True})
    call("POST", "/v1/pins", {}, fits=False)
    call("POST", "/v1/verify", {"after": None, "limit": 10, "repair": False})
    call("POST", "/v1/verify", {"limit": "all"}, fits=False)
    call("POST", "/v1/prune", {"max_entries": 0, "dry_run": True})
    call("POST", "/v1/prune", {"max_bytes": 0, "kind": "graph"})
    call("POST", "/v1/prune", {"max_bytes": -1}, fits=False)
    call("GET", "/v1/config")
    call("POST", "/v1/config", {"name": "lease_ttl", "value": "20s"})
    call("POST", "/v1/config", {"name": "dir", "value": "/x"})
    call("POST", "/v1/config", {"name": "lease_ttl", "value": "x"})
    call("POST", "/v1/shutdown", {"drain_ms": "x"}, fits=False)
    call("POST", "/v1/shutdown", {"drain_ms": 0})

    served = queue_of_a_cluster(record, small)
    promised = {
        (method, path, int(status))
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        for status in operation["responses"]
        # The others need a sick, full, busy or read-only store; test_builds and test_wire see them.
        if int(status) in (200, 201, 204, 404, 422)
    }
    assert promised <= daemon.seen | other.seen | served
