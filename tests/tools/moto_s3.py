"""moto's server, with writes to S3 one at a time: moto itself looks at If-None-Match and then writes, and another thread's
write fits in between, so that two clients can make one object. A real service makes it once. Arguments: moto's own.
"""

from __future__ import annotations

import threading
from typing import Any

from moto.s3.responses import S3Response
from moto.server import main

WRITING = threading.Lock()


def one_at_a_time(write: Any) -> Any:
    def wait_and_write(self: Any, *args: Any, **named: Any) -> Any:
        with WRITING:
            return write(self, *args, **named)

    return wait_and_write


for name in ("put_object", "_key_response_post"):
    setattr(S3Response, name, one_at_a_time(getattr(S3Response, name)))

if __name__ == "__main__":
    main()
