"""An S3 service in memory that believes nothing: every request's signature is computed anew from what arrived, and each
rule of the protocol that a lenient server lets pass is enforced. For tests of the engine.

    strict_s3.py [--token T] [--clock-offset S] [--ignore-conditions] [--expire-after N]

Prints its port. Keys: AKIDSTRICT / strict-secret; region eu-test-1; one bucket, "strict-bucket".
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import hmac
import http.server
import sys
import threading
import urllib.parse
import uuid
from xml.sax.saxutils import escape

KEY, SECRET, REGION, BUCKET = "AKIDSTRICT", "strict-secret", "eu-test-1", "strict-bucket"
MAX_SKEW_S = 15 * 60
MIN_PART = 5 << 20
UNRESERVED = "-_.~"


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message or code


class Bucket:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.uploads: dict[str, tuple[str, dict[int, tuple[bytes, str]]]] = {}


def quoted(text: str, also: str = "") -> str:
    return urllib.parse.quote(text, safe=UNRESERVED + also)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    bucket = Bucket()
    options = argparse.Namespace()
    served = 0

    def log_message(self, format: str, *args: object) -> None:
        pass

    # ---- Signatures ----

    def now(self) -> datetime.datetime:
        offset = datetime.timedelta(seconds=self.options.clock_offset)
        return datetime.datetime.now(datetime.UTC) + offset

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.now().strftime("%a, %d %b %Y %H:%M:%S GMT")

    def check(self, body: bytes) -> None:
        text = self.headers.get("authorization", "")
        if not text.startswith("AWS4-HMAC-SHA256 "):
            raise Refused(403, "AccessDenied", "no signature")
        fields = dict(part.strip().split("=", 1) for part in text.split(" ", 1)[1].split(","))
        key, day, region, service, end = fields["Credential"].split("/")
        if (key, region, service, end) != (KEY, REGION, "s3", "aws4_request"):
            raise Refused(403, "InvalidAccessKeyId" if key != KEY else "AuthorizationHeaderMalformed")
        names = fields["SignedHeaders"].split(";")
        if names != sorted(names) or "host" not in names:
            raise Refused(403, "AccessDenied", "signed headers")
        present = {name.lower() for name in self.headers}
        absent = [name for name in names if name not in present]
        unsigned = [name for name in present if name.startswith("x-amz-") and name not in names]
        if absent or unsigned:
            raise Refused(403, "AccessDenied", f"absent {absent}, unsigned {unsigned}")
        token = self.headers.get("x-amz-security-token", "")
        if token != self.options.token:
            raise Refused(400, "InvalidToken")
        Handler.served += 1
        if self.options.expire_after and Handler.served == self.options.expire_after:
            raise Refused(400, "ExpiredToken", "The provided token has expired.")
        stamp = self.headers["x-amz-date"]
        sent = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
        if abs((sent - self.now()).total_seconds()) > MAX_SKEW_S:
            raise Refused(403, "RequestTimeTooSkewed")
        if not stamp.startswith(day):
            raise Refused(403, "SignatureDoesNotMatch", "date of the scope")
        payload = self.headers.get("x-amz-content-sha256", "")
        if payload == "UNSIGNED-PAYLOAD":
            raise Refused(403, "AccessDenied", "unsigned payload without TLS")
        if payload != digest(body):
            raise Refused(400, "XAmzContentSHA256Mismatch")
        path, _, query = self.path.partition("?")
        if path != quoted(urllib.parse.unquote(path), "/"):
            raise Refused(403, "SignatureDoesNotMatch", "the path is not encoded as it is signed")
        pairs = [(k, v) for k, _, v in (item.partition("=") for item in query.split("&") if item)]
        line = "&".join(
            sorted(f"{quoted(urllib.parse.unquote(k))}={quoted(urllib.parse.unquote(v))}" for k, v in pairs)
        )
        values = "".join(f"{name}:{' '.join(self.headers[name].split())}\n" for name in names)
        canonical = "\n".join([self.command, path, line, values, ";".join(names), payload])
        scope = f"{day}/{region}/s3/aws4_request"
        signing = b"AWS4" + SECRET.encode()
        for part in (day, region, "s3", "aws4_request"):
            signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, digest(canonical.encode())])
        wanted = hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(wanted, fields["Signature"]):
            raise Refused(403, "SignatureDoesNotMatch")

    # ---- Answers ----

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, size: int = -1) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(len(body) if size < 0 else size))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def handle_one(self) -> None:
        if self.headers.get("expect"):
            return self.answer(417)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            self.check(body)
            path, _, query = self.path.partition("?")
            bucket, _, key = urllib.parse.unquote(path)[1:].partition("/")
            if bucket != BUCKET:
                raise Refused(404, "NoSuchBucket")
            fields = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
            with self.bucket.lock:
                self.route(key, fields, body)
        except Refused as refused:
            xml = f"<?xml version='1.0'?><Error><Code>{refused.code}</Code><Message>{refused.message}</Message></Error>"
            self.answer(refused.status, xml.encode(), {"content-type": "application/xml"})
        return None

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

    def route(self, key: str, fields: dict[str, str], body: bytes) -> None:
        if not key and self.command == "GET" and fields.get("list-type") == "2":
            return self.list(fields)
        if not key:
            raise Refused(400, "InvalidRequest")
        if self.command in ("GET", "HEAD"):
            return self.get(key)
        if self.command == "PUT" and "partNumber" in fields:
            return self.put_part(fields, body)
        if self.command == "PUT":
            return self.put(key, body)
        if self.command == "POST" and "uploads" in fields:
            upload = uuid.uuid4().hex
            self.bucket.uploads[upload] = (key, {})
            xml = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return self.answer(200, xml.encode())
        if self.command == "POST" and "uploadId" in fields:
            return self.complete(key, fields["uploadId"], body)
        if self.command == "DELETE" and "uploadId" in fields:
            if self.bucket.uploads.pop(fields["uploadId"], None) is None:
                raise Refused(404, "NoSuchUpload")
            return self.answer(204)
        if self.command == "DELETE":
            self.bucket.objects.pop(key, None)
            return self.answer(204)
        raise Refused(405, "MethodNotAllowed")

    def put(self, key: str, body: bytes) -> None:
        condition = self.headers.get("if-none-match")
        if condition and not self.options.ignore_conditions:
            if condition != "*":
                raise Refused(501, "NotImplemented")
            if key in self.bucket.objects:
                raise Refused(412, "PreconditionFailed")
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        self.bucket.objects[key] = (body, etag)
        self.answer(200, headers={"ETag": etag})

    def put_part(self, fields: dict[str, str], body: bytes) -> None:
        upload = self.bucket.uploads.get(fields.get("uploadId", ""))
        if upload is None:
            raise Refused(404, "NoSuchUpload")
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        upload[1][int(fields["partNumber"])] = (body, etag)
        self.answer(200, headers={"ETag": etag})

    def complete(self, key: str, upload: str, body: bytes) -> None:
        found = self.bucket.uploads.get(upload)
        if found is None or found[0] != key:
            raise Refused(404, "NoSuchUpload")
        parts = found[1]
        listed = "".join(
            f"<Part><PartNumber>{n}</PartNumber><ETag>{escape(etag, {chr(34): '&quot;'})}</ETag></Part>"
            for n, (_, etag) in sorted(parts.items())
        )
        if body.decode() != f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>":
            raise Refused(400, "InvalidPart")
        if any(len(data) < MIN_PART for n, (data, _) in parts.items() if n != max(parts)):
            raise Refused(400, "EntityTooSmall")
        data = b"".join(data for _, (data, _) in sorted(parts.items()))
        self.bucket.objects[key] = (data, f'"{hashlib.md5(data).hexdigest()}-{len(parts)}"')
        del self.bucket.uploads[upload]
        self.answer(200, b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")

    def get(self, key: str) -> None:
        if key not in self.bucket.objects:
            raise Refused(404, "NoSuchKey")
        data, etag = self.bucket.objects[key]
        if self.headers.get("if-match", etag) != etag:
            raise Refused(412, "PreconditionFailed")
        headers = {"ETag": etag, "Last-Modified": self.date_time_string()}
        asked = self.headers.get("range")
        if not asked:
            return self.answer(200, data, headers)
        first = int(asked.removeprefix("bytes=").removesuffix("-"))
        if first >= len(data):
            return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        return self.answer(206, data[first:], headers)

    def list(self, fields: dict[str, str]) -> None:
        prefix, after, limit = fields.get("prefix", ""), fields.get("start-after", ""), int(fields["max-keys"])
        keys = sorted(k for k in self.bucket.objects if k.startswith(prefix) and k > after)
        rows = "".join(
            f"<Contents><Key>{quoted(k, '/')}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
            f"<Size>{len(self.bucket.objects[k][0])}</Size></Contents>"
            for k in keys[:limit]
        )
        more = "true" if len(keys) > limit else "false"
        self.answer(
            200,
            f"<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><EncodingType>url</EncodingType>"
            f"<IsTruncated>{more}</IsTruncated>{rows}</ListBucketResult>".encode(),
        )


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no event."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--token", default="")
    parser.add_argument("--clock-offset", type=float, default=0)
    parser.add_argument("--ignore-conditions", action="store_true")
    parser.add_argument("--expire-after", type=int, default=0)
    Handler.options = parser.parse_args()
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
