"""CPU classes that native code is built for, and whether this host can run them.

Code is never built for "the CPU that happens to be here": what one host builds must be usable, bit for bit, by every
host that has the class's instructions, and must be refused, not crash, everywhere else.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

from neuroncache.errors import Unsupported


@dataclass(frozen=True)
class CpuClass:
    """A set of instructions that code may use, by the names that ``/proc/cpuinfo`` gives them."""

    name: str  # also the value of the compiler's -march
    simd_bits: int
    features: frozenset[str]


_V2 = frozenset("cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3".split())
_V3 = _V2 | frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe xsave".split())
_V4 = _V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())

V3 = CpuClass("x86-64-v3", 256, _V3)
V4 = CpuClass("x86-64-v4", 512, _V4)
CLASSES = {cpu_class.name: cpu_class for cpu_class in (V3, V4)}

_host: frozenset[str] | None = None


def host_features() -> frozenset[str]:
    """The instruction sets of this host. Read once; only the first core's, which is how Linux presents them anyway."""
    global _host
    if _host is None:
        _host = read_features("/proc/cpuinfo")
    return _host


def read_features(path: str) -> frozenset[str]:
    """The ``flags`` of the first core in a file like ``/proc/cpuinfo``; empty where there are none."""
    try:
        with open(path, "rb", buffering=0) as file:
            # The kernel writes one record per core, on big hosts hundreds of kB: the first record is enough.
            text = file.read(8192)
    except OSError:
        return frozenset()
    for line in text.split(b"\n"):
        name, _, value = line.partition(b":")
        if name.strip() == b"flags":
            return frozenset(value.decode("ascii", "replace").split())
    return frozenset()


def missing(cpu_class: CpuClass) -> list[str]:
    """Which of the class's instruction sets this host lacks, sorted; empty when it can run the class."""
    return sorted(cpu_class.features - host_features())


def choose(setting: str, capability: str | None = None) -> CpuClass:
    """The class to build for, from the setting ``cpu_class`` and the user's ``ATEN_CPU_CAPABILITY``.

    "auto" takes the widest class that the host has, which is what stock inductor would use; hosts of several kinds share
    artifacts when all are set to the narrowest of them. Raises `Unsupported` when the host cannot run the class.
    """
    if platform.machine() != "x86_64":
        raise Unsupported(f"no CPU class is defined for {platform.machine()}")
    if setting != "auto":
        chosen = CLASSES[setting]
        if lacking := missing(chosen):
            raise Unsupported(f"cpu_class is {setting}, but this host has no {', '.join(lacking)}")
        return chosen
    allowed = {"avx2": (V3,), "avx512": (V4,), None: (V4, V3), "": (V4, V3)}.get(capability, ())
    for candidate in allowed:
        if not missing(candidate):
            return candidate
    raise Unsupported(
        f"ATEN_CPU_CAPABILITY={capability} asks for code of no CPU class"
        if capability
        else f"this host has less than {V3.name}: no {', '.join(missing(V3))}"
    )
